"""Output files of a run: tables and FASTA."""
