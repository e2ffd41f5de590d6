"""Scores of vectors, and calls of windows and records."""
