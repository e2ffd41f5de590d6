"""ESM-2: peptides to vectors."""
