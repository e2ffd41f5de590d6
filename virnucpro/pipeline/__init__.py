"""Runs: jobs, run folders, workers, scheduling, validation."""
