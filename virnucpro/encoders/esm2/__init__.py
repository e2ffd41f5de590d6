"""ESM-2: an encoder that converts protein sequences to vectors."""
