"""Commands of ``virnucpro``: NAME_command.py has `add_options` and `run` of NAME."""
