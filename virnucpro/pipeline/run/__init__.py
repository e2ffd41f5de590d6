"""A run folder: opened, recorded, turned into outputs, verified."""
