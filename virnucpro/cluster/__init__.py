"""Engines that start the tasks of a run on a cluster, and the aggregation after them."""
