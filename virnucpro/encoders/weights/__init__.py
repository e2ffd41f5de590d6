"""Read and check files of weights, and load the weights into modules."""
