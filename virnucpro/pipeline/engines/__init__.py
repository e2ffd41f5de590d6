"""Engines: they start the tasks of a planned run, and the merges after them."""
