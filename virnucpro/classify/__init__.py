"""From vectors to scores, and from scores to calls."""
