"""Fault-tolerant, sharded classification of sequences as viral or non-viral.

This file stays free of torch and of every other heavy import: a spawned child imports the package
before its device mask is set.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
