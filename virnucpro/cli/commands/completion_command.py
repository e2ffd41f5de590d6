"""Print a completion script for a shell.

bash: virnucpro completion bash > ~/.local/share/bash-completion/completions/virnucpro
zsh: virnucpro completion zsh > a folder of $fpath, as _virnucpro
"""

import argparse

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.extras import require_extra


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``completion``."""
    shells = ("bash", "zsh", "fish", "tcsh")
    parser.add_argument("shell", choices=shells, help="shell of the script")


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``completion``; return its exit code."""
    from virnucpro.cli.main import full_parser

    require_extra("ui", "completion")
    import shtab

    print(shtab.complete(full_parser(), arguments.shell))
    return ExitCode.OK
