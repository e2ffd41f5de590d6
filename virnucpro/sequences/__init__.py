"""From input files to numbered items: readers, windows, six-frame translation, the index."""
