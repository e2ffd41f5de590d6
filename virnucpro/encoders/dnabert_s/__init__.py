"""DNABERT-S: an encoder that converts nucleotide sequences to vectors."""
