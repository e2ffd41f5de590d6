"""Code of a worker process (a rank): encode, score and commit its units."""
