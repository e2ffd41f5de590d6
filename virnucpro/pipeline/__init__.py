"""The bridge: science in processes."""
