"""The command line: parses, calls the library, prints, sets the exit code."""
