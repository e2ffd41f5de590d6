"""Command line: parse arguments, call the library, print results, set the exit code."""
