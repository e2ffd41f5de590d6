"""Compute scores from vectors, and viral or non-viral calls for windows and records."""
