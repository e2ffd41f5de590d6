"""The course of a run: preflight checks, workers, restarts, work stealing."""
