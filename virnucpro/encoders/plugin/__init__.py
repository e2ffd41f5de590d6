"""Encoders of other packages, in the entry-point group ``virnucpro.encoders``."""

from virnucpro.encoders.plugin.interface import EncoderPlugin

__all__ = ["EncoderPlugin"]
