"""Evaluation of bundles and other tools: from labelled sequences to figures."""
