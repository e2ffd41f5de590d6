"""DNABERT-S: bases to vectors."""
