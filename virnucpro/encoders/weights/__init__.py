"""Files of weights: reading, checking, filling modules."""
