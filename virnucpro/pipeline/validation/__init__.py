"""Checks of numbers and speed: parity, golden figures, throughput."""
