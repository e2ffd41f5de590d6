"""Rounds, parts and claims: the files by which several machines share one run."""
