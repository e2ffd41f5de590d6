"""Bundles: folders with all files that a prediction needs, verified by checksums."""
