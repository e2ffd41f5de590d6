"""Start, supervision and end of processes, independent of their work."""
