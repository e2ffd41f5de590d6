"""The run folder: create or resume it, write run.json and the outputs, verify all files."""
