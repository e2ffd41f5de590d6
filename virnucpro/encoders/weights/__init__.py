"""Files of weights: reading, checking, loading into modules."""
