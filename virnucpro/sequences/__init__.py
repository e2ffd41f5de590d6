"""Readers of input files, windows, six-frame translation and the sequence index."""
