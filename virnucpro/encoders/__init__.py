"""Encoders turn sequences into vectors.

Add an encoder as a folder with two files and one line in ``registry.py``:

- ``config.py``: settings without torch, an `EncoderConfig`: tensor names and shapes
- ``encoder.py``: ``load(spec, device, precision)`` and ``recognise(path)``

Both existing folders also have ``model.py`` (forward pass). Shared parts: ``batching.py`` and
``packed.py`` (batches), ``kernels.py`` (matrix products, attention), ``weights/`` (files of
weights), ``memory.py`` and ``device.py`` (limits).
"""
