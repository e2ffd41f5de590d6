"""The Python API: the commands ``predict`` and ``embed`` as functions, and readers of runs."""
