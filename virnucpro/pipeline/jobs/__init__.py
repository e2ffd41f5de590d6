"""Jobs: inputs, model, parameters and precision of a command."""
