"""Commands for one run on many machines."""
