"""Training: from labelled sequences to a bundle."""
