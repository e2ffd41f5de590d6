"""From a view of an item to a vector."""
