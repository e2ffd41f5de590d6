"""Fault-tolerant, sharded classification of sequences as viral or non-viral.

This file must not import torch or other large packages: a child process imports it before its
CUDA_VISIBLE_DEVICES is set.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
