"""The files a run ends in."""
