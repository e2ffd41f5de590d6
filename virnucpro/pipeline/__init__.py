"""Compute a job into a run folder: jobs, run folders, workers, scheduling, validation."""
