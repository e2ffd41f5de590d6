"""Many files over the devices of one machine."""
