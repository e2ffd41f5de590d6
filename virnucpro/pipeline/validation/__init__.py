"""Checks of an installation: parity with fp32 on the CPU, reference vectors, throughput."""
