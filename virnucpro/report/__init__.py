"""Output files of a run: tables and sequences."""
