"""Commands of ``virnucpro``: NAME_command.py defines the options and actions of NAME."""
