"""Print the publications to cite: the original tool, its encoders, and this program."""

import argparse

from virnucpro import __version__
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.report.citations import PUBLICATIONS


def add_options(_parser: argparse.ArgumentParser) -> None:
    """Add no option: the command ``cite`` has none."""


def run(_arguments: argparse.Namespace) -> int:
    """Run the command ``cite``; return its exit code."""
    print(f"this program: virnucpro {__version__}, with the bundle named in run.json")
    for part, publication in PUBLICATIONS.items():
        print(f"\n{part}:\n  {publication}")
    return ExitCode.OK
