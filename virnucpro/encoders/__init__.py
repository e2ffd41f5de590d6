"""Encoders turn sequences into vectors.

Add an encoder as a folder with two files and one line in ``registry.py``:

- ``config.py``: a class with settings, tensor names and shapes (`EncoderConfig`), without torch
- ``encoder.py``: ``build(spec, config, device, dtype)`` and ``recognise(path)``; without torch
  (``with_torch``) ``load(spec, config, device, precision)`` instead of ``build``; for ``--outputs``
  also ``vocabulary(spec)``

`open_spec` asks the encoders with torch in the order of their names: `recognise` returns None for
files of another encoder. That of ESM-2 takes every ``.pt`` file.

Another package adds an encoder without a change here: ``plugin/``.

``model.py`` is the forward pass. Shared parts: ``loading.py``, ``pooling.py`` and
``language_model.py`` (what becomes of tokens), ``encoder.py`` and ``batching.py`` (batches),
``kernels.py`` (matrix products, attention), ``weights/`` (files of weights), ``memory.py`` and
``device.py`` (memory limits).
"""
