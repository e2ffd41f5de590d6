"""Encoders turn sequences into vectors.

Add an encoder as a folder with two files and one line in ``registry.py``:

- ``config.py``: a class with settings, tensor names and shapes (`EncoderConfig`), without torch
- ``encoder.py``: ``build(spec, config, device, dtype)`` and ``recognise(path)``

Another package adds an encoder without a change here: ``plugin/``.

``model.py`` is the forward pass. Shared parts: ``pooled.py`` (loading, pooling), ``encoder.py`` and
``batching.py`` (batches), ``kernels.py`` (matrix products, attention), ``weights/`` (files of
weights), ``memory.py`` and ``device.py`` (memory limits).
"""
