"""``python -m virnucpro``: the command line."""

from virnucpro.cli.main import run

if __name__ == "__main__":
    run()
