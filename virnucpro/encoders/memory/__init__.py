"""Memory of a device: what it has, what encoders need, how many tokens fit."""
