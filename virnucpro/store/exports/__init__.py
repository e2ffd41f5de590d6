"""Copies of embeddings.h5 in the formats of other programs, written block by block."""
