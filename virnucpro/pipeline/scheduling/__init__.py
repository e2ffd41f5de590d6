"""Scheduling of a run: checks, ranks, restarts, work stealing."""
