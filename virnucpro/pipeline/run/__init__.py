"""The run folder: creation, records, outputs, verification."""
