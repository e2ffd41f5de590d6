"""``virnucpro bundle``: list, show, fetch, import, verify, pack and unpack bundles."""

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from virnucpro.cli.exit_codes import ExitCode
from virnucpro.cli.options import a_name, a_path, add_device_options, positive
from virnucpro.cli.transfer_progress import TransferReporter
from virnucpro.console import say
from virnucpro.errors import BundleError, UsageError
from virnucpro.runtime.signals import StopRequested

if TYPE_CHECKING:
    from virnucpro.bundles.bundle import Bundle
    from virnucpro.pipeline.validation.golden import GoldenRow

__all__ = ["add_options"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the actions of the command."""
    parser.description = (
        "A bundle is a folder with everything that a prediction needs: encoders, "
        "classifier, thresholds, and a card with its measured accuracy. Bundles are installed in "
        "VIRNUCPRO_DATA; default: ~/.local/share/virnucpro (XDG data folder)."
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for add in (_add_list, _add_show, _add_fetch, _add_import, _add_verify, _add_pack, _add_unpack):
        add(actions)


def _add_list(actions: Any) -> None:  # noqa: ANN401 - as above
    parser = actions.add_parser("list", help="list embedded and installed bundles")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_list)


def _add_show(actions: Any) -> None:  # noqa: ANN401 - as above
    parser = actions.add_parser("show", help="verify one bundle and print its content")
    parser.add_argument("bundle", type=a_name, metavar="NAME", help="name or folder of a bundle")
    parser.add_argument("--json", action="store_true", help="print bundle.json")
    parser.set_defaults(run=_show)


def _add_fetch(actions: Any) -> None:  # noqa: ANN401 - as above
    from virnucpro.bundles.published import HOMES, published_names

    mirrors = ", ".join(home.mirror_variable for home in HOMES.values())
    parser = actions.add_parser(
        "fetch",
        help="download and install a published bundle",
        description="Download, verify, convert to safetensors and install. No downloaded code "
        "runs. Rerun the command to resume an interrupted download. Environment variables of "
        f"proxies: https_proxy, no_proxy; of mirrors: {mirrors}.",
    )
    parser.add_argument("name", metavar="NAME", help=", ".join(published_names()))
    parser.add_argument(
        "--from",
        dest="source",
        type=a_path,
        metavar="DIR",
        help="copy the published files from DIR instead of the network",
    )
    _add_quiet(parser)
    parser.set_defaults(run=_fetch)


def _add_import(actions: Any) -> None:  # noqa: ANN401 - as above
    parser = actions.add_parser(
        "import",
        help="install a classifier from a file",
        description="Convert a published classifier (a pickled MLPClassifier; its code does not "
        "run) and install it with its encoders as a bundle.",
    )
    parser.add_argument(
        "classifier", type=a_path, metavar="FILE", help="classifier, such as 500_model.pth"
    )
    parser.add_argument(
        "--name",
        type=a_name,
        help="name of the bundle; default: the published name, or the name of the file",
    )
    parser.add_argument(
        "--window",
        type=positive,
        metavar="BASES",
        help="window length of the training data; default: the published one, or the number in the "
        "file name",
    )
    parser.add_argument(
        "--encoders",
        type=a_name,
        metavar="NAME",
        help="take the encoders from this installed bundle",
    )
    parser.add_argument(
        "--nucleotide",
        type=a_path,
        metavar="DIR",
        help="nucleotide encoder: a DNABERT-S folder; requires --protein",
    )
    parser.add_argument(
        "--protein",
        type=a_path,
        metavar="FILE",
        help="protein encoder: a fair-esm checkpoint; requires --nucleotide",
    )
    parser.set_defaults(run=_import)


def _add_verify(actions: Any) -> None:  # noqa: ANN401 - as above
    parser = actions.add_parser(
        "verify",
        help="verify every file of a bundle",
        description="Compare every file with its SHA-256 in the bundle's manifest. With --golden, "
        "compute the vectors of reference sequences on this device and compare them with recorded "
        "ones (exit code 1 if they differ by more than rounding).",
    )
    parser.add_argument("bundle", type=a_name, metavar="NAME", help="name or folder of a bundle")
    parser.add_argument(
        "--golden", action="store_true", help="also compare vectors of reference sequences"
    )
    add_device_options(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_verify)


def _add_pack(actions: Any) -> None:  # noqa: ANN401 - as above
    parser = actions.add_parser("pack", help="write a bundle into one file")
    parser.add_argument("bundle", type=a_name, metavar="NAME", help="name or folder of a bundle")
    parser.add_argument(
        "-o", "--output", type=a_path, required=True, metavar="FILE", help="output file"
    )
    parser.set_defaults(run=_pack)


def _add_unpack(actions: Any) -> None:  # noqa: ANN401 - as above
    parser = actions.add_parser("unpack", help="verify and install a packed bundle")
    parser.add_argument(
        "archive", type=a_path, metavar="FILE", help="file written by `virnucpro bundle pack`"
    )
    parser.set_defaults(run=_unpack)


def _add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")


def _list(arguments: argparse.Namespace) -> int:
    from virnucpro.bundles.bundle import list_bundles

    bundles = list_bundles()
    if arguments.json:
        print(json.dumps([_as_json(name, one) for name, one in bundles.items()], indent=2))
    else:
        for name, one in bundles.items():
            print(f"{name}\t{_line(one)}")
    return ExitCode.OK


def _as_json(name: str, one: "Bundle | BundleError") -> dict[str, str]:
    if isinstance(one, BundleError):
        return {"name": name, "error": str(one)}
    return {"name": name, "version": one.version, "fingerprint": one.fingerprint}


def _line(one: "Bundle | BundleError") -> str:
    if isinstance(one, BundleError):
        return f"-\tcannot be used: {one}"
    use = "encoders only" if one.head is None else f"window {one.window}, {one.tiling}"
    return f"{one.version}\t{use}"


def _show(arguments: argparse.Namespace) -> int:
    from virnucpro.bundles.bundle import describe_bundle, open_bundle

    bundle = open_bundle(arguments.bundle)
    text = (bundle.path / "bundle.json").read_text() if arguments.json else describe_bundle(bundle)
    print(text.rstrip())
    return ExitCode.OK


def _fetch(arguments: argparse.Namespace) -> int:
    from virnucpro.bundles.data_folder import data_folder
    from virnucpro.bundles.fetch import Listener, fetch_bundle
    from virnucpro.bundles.published import recipe_of
    from virnucpro.runtime.isolation import run_isolated

    try:
        with TransferReporter(quiet=arguments.quiet) as reporter:
            bundle = fetch_bundle(
                recipe_of(arguments.name),
                data_folder(),
                Listener(reporter.stage, reporter.progress),
                source=arguments.source,
                isolate=run_isolated,
            )
    except StopRequested as stop:
        print(
            f"virnucpro: stopped by {stop}. Downloads are kept: rerun the command to resume.",
            file=sys.stderr,
        )
        raise
    print(f"{bundle.name}\t{bundle.path}")
    return ExitCode.OK


def _import(arguments: argparse.Namespace) -> int:
    from virnucpro.bundles.data_folder import data_folder
    from virnucpro.bundles.import_head import OwnFiles, import_classifier
    from virnucpro.runtime.isolation import run_isolated

    own = (arguments.nucleotide, arguments.protein)
    if (None in own) != (own == (None, None)) or (arguments.encoders and own != (None, None)):
        raise UsageError(
            "give --nucleotide and --protein together, or --encoders, or none of the three options"
        )
    bundle = import_classifier(
        arguments.classifier,
        data_folder(),
        name=arguments.name,
        window=arguments.window,
        encoders=arguments.encoders if None in own else OwnFiles(*own),
        isolate=run_isolated,
    )
    print(f"{bundle.name}\t{bundle.path}")
    return ExitCode.OK


def _verify(arguments: argparse.Namespace) -> int:
    from virnucpro.bundles.bundle import open_bundle

    bundle = open_bundle(arguments.bundle)
    if not arguments.json:
        print(f"{bundle.name} {bundle.version}: all files match the manifest ({bundle.path})")
    rows = _golden_rows(bundle, arguments) if arguments.golden else []
    if arguments.json:
        named = {name: getattr(bundle, name) for name in ("name", "version", "fingerprint")}
        content = {**named, "path": str(bundle.path), "golden": [asdict(row) for row in rows]}
        print(json.dumps(content, indent=2))
    elif rows:
        _print_rows(rows)
    return ExitCode.OK if all(row.agrees for row in rows) else ExitCode.FAILED


def _golden_rows(bundle: "Bundle", arguments: argparse.Namespace) -> "list[GoldenRow]":
    from virnucpro.pipeline.validation.golden import compare_golden

    return compare_golden(bundle, arguments.device, arguments.precision, arguments.threads)


def _print_rows(rows: "list[GoldenRow]") -> None:
    print("what\titem\tcosine or score\twanted\tverdict")
    for row in rows:
        verdict = "agrees" if row.agrees else "DIFFERS"
        print(f"{row.what}\t{row.item}\t{row.found:.6f}\t{row.wanted}\t{verdict}")


def _pack(arguments: argparse.Namespace) -> int:
    from virnucpro.bundles.archive import pack_bundle
    from virnucpro.bundles.bundle import open_bundle

    if str(arguments.output) == "-":
        raise UsageError("pack cannot write to standard output: name a file")
    if arguments.output.is_dir():
        raise UsageError(f"{arguments.output} is a folder: name a file in it")
    if not arguments.output.absolute().parent.is_dir():
        raise UsageError(
            f"{arguments.output.parent} is not a folder: create it, or name another file"
        )
    size = pack_bundle(open_bundle(arguments.bundle), arguments.output)
    print(f"{arguments.output}\t{size}")
    return ExitCode.OK


def _unpack(arguments: argparse.Namespace) -> int:
    from virnucpro.bundles.archive import unpack_bundle
    from virnucpro.bundles.data_folder import data_folder
    from virnucpro.bundles.provenance import trust_warning

    data = data_folder()
    bundle = unpack_bundle(arguments.archive, data)
    if (warning := trust_warning(data, bundle.name)) is not None:
        say(f"warning: {warning}")
    print(f"{bundle.name}\t{bundle.path}")
    return ExitCode.OK
