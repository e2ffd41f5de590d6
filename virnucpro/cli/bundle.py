"""``virnucpro bundle``: which bundles there are, and what is in one."""

import argparse
import json
from typing import Any

from virnucpro.cli.exit_codes import ExitCode

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse keeps the type of subparsers private
    """Add the command and its sub-commands."""
    parser = commands.add_parser(
        "bundle",
        help="list and show bundles",
        description="A bundle is a folder with all that a prediction needs: encoders, classifier, "
        "thresholds, and a card that says how good it is.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    lister = actions.add_parser("list", help="list the bundles that are installed")
    lister.add_argument("--json", action="store_true", help="print JSON for a machine")
    lister.set_defaults(run=_list)
    shower = actions.add_parser("show", help="verify one bundle and print what is in it")
    shower.add_argument("bundle", metavar="NAME", help="a name, or a bundle's folder")
    shower.add_argument("--json", action="store_true", help="print bundle.json as it is")
    shower.set_defaults(run=_show)


def _list(arguments: argparse.Namespace) -> int:
    from virnucpro.bundles.bundle import list_bundles

    bundles = list_bundles()
    if arguments.json:
        rows = [
            {"name": one.name, "version": one.version, "fingerprint": one.fingerprint}
            for one in bundles
        ]
        print(json.dumps(rows, indent=2))
    else:
        for one in bundles:
            print(f"{one.name}\t{one.version}\twindow {one.window}, {one.tiling}")
    return ExitCode.OK


def _show(arguments: argparse.Namespace) -> int:
    from virnucpro.bundles.bundle import describe_bundle, open_bundle

    bundle = open_bundle(arguments.bundle)
    text = (bundle.path / "bundle.json").read_text() if arguments.json else describe_bundle(bundle)
    print(text.rstrip())
    return ExitCode.OK
