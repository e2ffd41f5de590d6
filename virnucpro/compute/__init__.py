"""Computes a job: launch, ranks, units, isolation of poison rows. Imports no torch."""
