"""Processes: starting, watching and stopping them. Knows nothing of what they do."""
