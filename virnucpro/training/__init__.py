"""Training of classifiers from labelled sequences."""
