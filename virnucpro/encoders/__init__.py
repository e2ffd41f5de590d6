"""Encoders turn sequences into vectors.

Add an encoder as a folder with two files and one line in ``registry.py``:

- ``config.py``: a class with settings, tensor names and shapes (`EncoderConfig`), without torch
- ``encoder.py``: ``load(spec, device, precision)`` and ``recognise(path)``

Both existing folders also have ``model.py`` (forward pass). Shared parts: ``batching.py`` and
``encoder.py`` (batches), ``kernels.py`` (matrix products, attention), ``weights/`` (files of
weights), ``memory.py`` and ``device.py`` (memory limits).
"""
