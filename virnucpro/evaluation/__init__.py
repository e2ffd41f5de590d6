"""Measure how well scores separate labelled viral and non-viral sequences."""
