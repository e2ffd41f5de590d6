"""List, show, fetch and verify bundles.

A bundle is a folder with everything that a prediction needs: encoders, classifier, thresholds, and
a card with its measured accuracy. Bundles are installed in the folder VIRNUCPRO_DATA; default:
~/.local/share/virnucpro (XDG data folder).
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.errors import BundleError
from virnucpro.extras import require_extra
from virnucpro.lab.validation.options import ComputeOptions
from virnucpro.run.reporter import open_reporter

if TYPE_CHECKING:
    from virnucpro.bundles.manifest import Bundle
    from virnucpro.lab.validation.golden import GoldenRow


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the actions of the command ``bundle``, such as ``bundle list``."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for name, act, add, text in (
        ("list", _list, options.add_json, "list embedded and installed bundles"),
        ("show", _show, _add_show_options, "verify a bundle and print its content"),
        ("fetch", _fetch, _add_fetch_options, "download and install a published bundle"),
        ("verify", _verify, _add_verify_options, "verify every file of a bundle"),
    ):
        action = actions.add_parser(name, help=text, description=act.__doc__)
        add(action)
        action.set_defaults(act=act)


def run(arguments: argparse.Namespace) -> int:
    """Run an action of the command ``bundle``; return its exit code."""
    code: int = arguments.act(arguments)
    return code


def _add_bundle(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", metavar="NAME", help="name or folder of a bundle")


def _add_show_options(parser: argparse.ArgumentParser) -> None:
    _add_bundle(parser)
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--json", action="store_true", help="print bundle.json")
    text = (
        "print the recall of a virus family, such as Hepadnaviridae, from the cross-validations; "
        "without FAMILY, of all families"
    )
    kinds.add_argument("--families", nargs="?", const="", metavar="FAMILY", help=text)


def _add_fetch_options(parser: argparse.ArgumentParser) -> None:
    from virnucpro.bundles.published import published_names

    parser.add_argument("name", metavar="NAME", help="one of " + ", ".join(published_names()))
    text = "folder that holds the published model files; default: download the files"
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR", help=text)
    options.add_quiet(parser)


def _add_verify_options(parser: argparse.ArgumentParser) -> None:
    _add_bundle(parser)
    text = "also compare vectors of reference sequences with recorded vectors"
    parser.add_argument("--golden", action="store_true", help=text)
    options.add_device(parser)
    parser.set_defaults(**vars(ComputeOptions()))
    options.add_json(parser)


def _list(arguments: argparse.Namespace) -> int:
    """List embedded and installed bundles: name, version, window and tiling, one per line."""
    from virnucpro.bundles.bundle import list_bundles

    bundles = list_bundles()
    if arguments.json:
        print(json.dumps([_as_json(name, bundle) for name, bundle in bundles.items()], indent=2))
    else:
        for name, bundle in bundles.items():
            print(f"{name}\t{_line(bundle)}")
    return ExitCode.OK


def _as_json(name: str, bundle: "Bundle | BundleError") -> dict[str, str]:
    if isinstance(bundle, BundleError):
        return {"name": name, "error": str(bundle)}
    return {"name": name, "version": bundle.version, "fingerprint": bundle.fingerprint}


def _line(bundle: "Bundle | BundleError") -> str:
    if isinstance(bundle, BundleError):
        return f"-\tcannot be used: {bundle}"
    use = "encoders only" if bundle.head is None else f"window {bundle.window}, {bundle.tiling}"
    return f"{bundle.version}\t{use}"


def _show(arguments: argparse.Namespace) -> int:
    """Verify every file of a bundle and print its content and its card."""
    from virnucpro.bundles.bundle import describe_bundle, open_bundle
    from virnucpro.bundles.families import families_table

    bundle = open_bundle(arguments.bundle)
    if arguments.families is not None:
        text = families_table(bundle, arguments.families)
    elif arguments.json:
        text = (bundle.path / "bundle.json").read_text()
    else:
        text = describe_bundle(bundle)
    print(text.rstrip())
    return ExitCode.OK


def _fetch(arguments: argparse.Namespace) -> int:
    """Download, verify, convert to safetensors and install a published bundle.

    No downloaded code runs. Rerun the command to resume an interrupted download. Environment
    variables of proxies: https_proxy, no_proxy; of mirrors: VIRNUCPRO_MIRROR_ESM2,
    VIRNUCPRO_MIRROR_HUB, VIRNUCPRO_MIRROR_HEADS.
    """
    from virnucpro.bundles.data_folder import data_folder
    from virnucpro.bundles.download import Listener
    from virnucpro.bundles.fetch import fetch_bundle
    from virnucpro.bundles.published import recipe_of
    from virnucpro.runtime.isolation import run_isolated

    stopped = "Downloads are kept. Rerun the command to resume."
    with open_reporter(quiet=arguments.quiet, if_stopped=stopped) as reporter:

        def progress(name: str, have: int, size: int | None) -> None:
            if size:
                reporter.finished(have / size, f"{name}, {size / 1e6:,.1f} MB")

        bundle = fetch_bundle(
            recipe_of(arguments.name),
            data_folder(),
            Listener(reporter.stage, progress),
            source=arguments.source,
            isolate=run_isolated,
        )
    print(f"{bundle.name}\t{bundle.path}")
    return ExitCode.OK


def _verify(arguments: argparse.Namespace) -> int:
    """Compare every file of a bundle with its SHA-256 in the bundle's manifest.

    With --golden, also compute the vectors of reference sequences on this device and compare them
    with recorded vectors. Exit code 1: a file is damaged, or vectors differ by more than rounding.
    """
    from virnucpro.bundles.bundle import open_bundle

    bundle = open_bundle(arguments.bundle)
    if not arguments.json:
        print(f"{bundle.name} {bundle.version}: all files match the manifest ({bundle.path})")
    rows: list[GoldenRow] = []
    if arguments.golden:
        require_extra("models", "bundle verify --golden")
        from virnucpro.lab.validation.golden import compare_golden

        rows = compare_golden(bundle, ComputeOptions(**options.chosen(ComputeOptions, arguments)))
    if arguments.json:
        named = {name: getattr(bundle, name) for name in ("name", "version", "fingerprint")}
        content = {**named, "path": str(bundle.path), "golden": [asdict(row) for row in rows]}
        print(json.dumps(content, indent=2))
    elif rows:
        _print_rows(rows)
    return ExitCode.OK if all(row.agrees for row in rows) else ExitCode.FAILED


def _print_rows(rows: "list[GoldenRow]") -> None:
    print("what\titem\tcosine or score\texpected\tverdict")
    for row in rows:
        verdict = "agrees" if row.agrees else "DIFFERS"
        print(f"{row.what}\t{row.item}\t{row.found:.6f}\t{row.wanted}\t{verdict}")
