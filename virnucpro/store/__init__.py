"""Segments of a run on disk: writing, coverage, aggregation into embeddings.h5."""
