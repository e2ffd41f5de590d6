"""Validation on this machine: parity of devices, throughput, golden vectors."""
