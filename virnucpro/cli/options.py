"""Options that several commands share."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from virnucpro.classifier.call_options import PRESETS, CallOptions
from virnucpro.machine import usable_cpus
from virnucpro.pipeline.execution import Execution
from virnucpro.report.extract_options import ExtractOptions

__all__ = [
    "DEFAULTS",
    "add_bundle",
    "add_calls",
    "add_device",
    "add_devices",
    "add_encoder",
    "add_existing",
    "add_extracts",
    "add_failures",
    "add_fallback",
    "add_force_alphabet",
    "add_inputs",
    "add_json",
    "add_min_length",
    "add_no_lock",
    "add_outdir",
    "add_precision",
    "add_quiet",
    "add_report",
    "add_stored_vectors",
    "add_strict",
    "add_threads",
    "add_tiling",
    "call_options",
    "integer_from",
    "job_options",
    "positive",
    "seconds",
]

_Group = argparse._ActionsContainer  # noqa: SLF001 - common base of parsers and groups
DEFAULTS: Final = Execution(Path())
"""Default values of an execution."""

_JOB_OPTIONS: Final = (
    *("bundle", "encoder", "window", "tiling", "genetic_code", "precision", "embeddings"),
    *("fallback", "min_length", "strict", "force_alphabet", "published_files"),
)
_CALL_OPTIONS: Final = ("preset", "threshold", "fdr", "prevalence")
_PRECISION: Final[dict[str, Any]] = {"choices": ("auto", "fp32", "fp16", "bf16"), "default": "auto"}


def integer_from(least: int) -> Callable[[str], int]:
    """Return a function that parses a whole number and refuses values below `least`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return number

    return parse


positive = integer_from(1)


def seconds(text: str) -> float:
    """Parse a duration in seconds; refuse zero and negative values."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return number


def _cpu_threads(text: str) -> int:
    """Parse a number of threads; refuse a number above the CPUs, because torch can then abort."""
    number, cpus = positive(text), usable_cpus()
    if number > cpus:
        raise argparse.ArgumentTypeError(f"{text} exceeds the {cpus} CPUs of this process")
    return number


def add_inputs(parser: _Group) -> None:
    """Add the argument for the input files."""
    text = "FASTA or FASTQ files, plain or compressed (gz, bz2, xz, zst); - for standard input"
    parser.add_argument("inputs", nargs="+", metavar="FASTA", help=text)


def add_strict(parser: _Group) -> None:
    """Add the option that refuses inputs with gaps or invalid letters."""
    text = (
        "refuse inputs with gaps or invalid letters; default: remove gaps, and give sequences with "
        "invalid letters the status invalid_letters"
    )
    parser.add_argument("--strict", action="store_true", default=None, help=text)


def add_force_alphabet(parser: _Group) -> None:
    """Add the option that accepts inputs of the other alphabet."""
    text = (
        "accept inputs that look like nucleotides for an encoder of proteins, and the reverse; "
        "default: refuse them"
    )
    parser.add_argument("--force-alphabet", action="store_true", default=None, help=text)


def add_min_length(parser: _Group) -> None:
    """Add the option for the least length of a sequence."""
    text = (
        "least length of a sequence in bases; shorter ones get the status too_short; default: a "
        "third of a window, and 0 with the tiling published"
    )
    parser.add_argument("--min-length", type=integer_from(0), metavar="BASES", help=text)


def add_outdir(parser: _Group, metavar: str, text: str) -> None:
    """Add the option for the output folder."""
    parser.add_argument("-o", "--outdir", type=Path, required=True, metavar=metavar, help=text)


def add_devices(parser: _Group, name: str) -> None:
    """Add the option `name`, which selects the devices of the workers."""
    parser.add_argument(
        name,
        default="auto",
        metavar="LIST",
        help="devices, one worker process each: auto (all visible GPUs; without a GPU, one CPU "
        "worker per thread as far as memory allows), 0,1 (these GPUs), cpu:2 (two CPU workers); "
        "default: %(default)s",
    )


def add_threads(parser: _Group) -> None:
    """Add the option for the number of CPU threads."""
    text = "CPU threads of all workers together; default: all CPUs of this process"
    parser.add_argument("-t", "--threads", type=_cpu_threads, metavar="N", help=text)


def add_existing(parser: argparse.ArgumentParser, name: str, same: str) -> None:
    """Add the options for an existing `name` in DIR, whose `same` a resume requires."""
    group = parser.add_mutually_exclusive_group()
    text = f"resume the {name} in DIR if there is one; requires the same {same}"
    group.add_argument("--resume", action="store_true", help=text)
    text = f"delete the {name} in DIR and start a new one"
    group.add_argument("--force", action="store_true", help=text)


def add_quiet(parser: _Group) -> None:
    """Add the option that turns off progress messages."""
    parser.add_argument("-q", "--quiet", action="store_true", help="print warnings and errors only")


def add_report(parser: _Group) -> None:
    """Add the option that leaves out the report."""
    text = "do not write report.html; to write it later: virnucpro report DIR"
    parser.add_argument("--no-report", dest="report", action="store_false", help=text)


def add_no_lock(parser: _Group) -> None:
    """Add the option that turns off the lock of the run folder."""
    text = (
        "do not lock the run folder, for file systems without locks; no other process may write "
        "there meanwhile"
    )
    parser.add_argument("--no-lock", dest="lock", action="store_false", help=text)


def add_json(parser: _Group) -> None:
    """Add the option for JSON on standard output."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_bundle(parser: _Group) -> None:
    """Add the option for the bundle."""
    text = "encoders and classifier: name (see virnucpro bundle list) or folder; default: mini"
    parser.add_argument("-b", "--bundle", default="mini", metavar="NAME", help=text)


def add_fallback(parser: _Group) -> None:
    """Add the option that turns off the scores of windows without an item."""
    parser.add_argument(
        "--no-fallback",
        dest="fallback",
        action="store_const",
        const=False,
        help="leave windows without an item without a score; default: score them by their "
        "composition (bundles of open frames or stretches)",
    )


def add_calls(parser: argparse.ArgumentParser) -> None:
    """Add the options of the rule by which records are called viral."""
    group = parser.add_argument_group("calls")
    group.add_argument(
        "--preset",
        choices=PRESETS,
        help="thresholds of the bundle; sensitive finds more viruses, conservative calls fewer "
        "others viral; default: default, or the rule of the resumed run",
    )
    rule = group.add_mutually_exclusive_group()
    text = "viral from this probability on (from this score, if the bundle has no calibration)"
    rule.add_argument("--threshold", type=_share, metavar="P", help=f"{text}; default: --preset")
    text = "maximum false discovery rate among the viral calls, from the probabilities of the run"
    rule.add_argument("--fdr", type=_share, metavar="Q", help=f"{text}; default: no limit")
    group.add_argument(
        "--prevalence",
        type=_prevalence,
        metavar="P",
        help="expected share of viral sequences in the input; auto: estimate it from the scores; "
        "default: that of the bundle's calibration (mini: 0.5)",
    )


def add_extracts(parser: argparse.ArgumentParser) -> None:
    """Add the options of the files of called records."""
    group = parser.add_argument_group("sequences")
    text = (
        "calls whose sequences are written, one file each, separated by commas: viral, ambiguous, "
        "non-viral, not_scored; or none; default: viral (viral.fasta; viral.fastq if all inputs "
        "are FASTQ), or as in the resumed run"
    )
    group.add_argument("--extract", metavar="LIST", help=text)
    text = "compress these files with gzip"
    group.add_argument("--compress", action="store_true", default=None, help=text)


def _extract_options(arguments: argparse.Namespace) -> ExtractOptions | None:
    """Return the choice of sequences given on the command line; None if no option is given."""
    given: dict[str, Any] = vars(arguments)
    listed, compress = given.get("extract"), given.get("compress")
    if listed is None and compress is None:
        return None
    calls = ("viral",) if listed is None else () if listed == "none" else tuple(listed.split(","))
    return ExtractOptions(calls, bool(compress))


def _share(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return number


def _prevalence(text: str) -> float | str:
    if text == "auto":
        return text
    number = _share(text)
    if number in (0.0, 1.0):
        raise argparse.ArgumentTypeError(f"{text!r} is not auto or a number between 0 and 1")
    return number


def call_options(arguments: argparse.Namespace) -> CallOptions | None:
    """Return the rule of the calls given on the command line; None if no option is given."""
    given: dict[str, Any] = {name: getattr(arguments, name, None) for name in _CALL_OPTIONS}
    given = {name: value for name, value in given.items() if value is not None}
    return CallOptions(**given) if given else None


def add_encoder(parser: _Group, *, required: bool) -> None:
    """Add the option that selects one encoder."""
    parser.add_argument(
        "-e",
        "--encoder",
        required=required,
        metavar="NAME",
        help="encoder: BUNDLE/VIEW (mini-deep/protein, mini/nucleotide), fair-esm checkpoint "
        "(esm2_*.pt), DNABERT-S folder, or Hugging Face folder (ESM, T5, BERT with safetensors)",
    )


def add_failures(
    parser: argparse.ArgumentParser, title: str, timeouts: dict[str, tuple[float | None, str]]
) -> _Group:
    """Add a group of options to the parser, with one option for each timeout; return the group.

    Parameters
    ----------
    timeouts
        Default in seconds and help text of each timeout. The key ``start`` gives the option
        ``--start-timeout``. If the default is None, the help text states the default.
    """
    group = parser.add_argument_group(title)
    for name, (default, text) in timeouts.items():
        group.add_argument(
            f"--{name}-timeout",
            type=seconds,
            default=default,
            metavar="SECONDS",
            help=text if default is None else f"{text}; default: {default:g} s",
        )
    return group


def add_precision(parser: _Group) -> None:
    """Add the option for the precision of the encoders."""
    parser.add_argument(
        "--precision",
        **_PRECISION,
        help="floating-point precision of the encoders; auto: a resumed run keeps its precision; "
        "a new run uses fp32 for encoders below 100 MB, fp16 on a GPU, bf16 on a CPU with AMX if "
        "the bundle's card lists it as verified, else fp32; default: auto",
    )


def add_stored_vectors(parser: _Group) -> None:
    """Add the options of what a run of predict keeps besides its tables."""
    parser.add_argument(
        "--embeddings",
        type=_stored_vectors,
        nargs="?",
        const="fp16",
        metavar="PRECISION",
        help="keep the vectors of all items, and write them to embeddings.h5, at fp16 (default) or "
        "fp32; rescore with another bundle needs them; default: none, or as the resumed run",
    )
    text = (
        "write the two tables of the published VirNucPro, prediction_results.txt and "
        "prediction_results_highestscore.csv; default: for the published bundles only"
    )
    parser.add_argument("--published-files", action="store_true", default=None, help=text)


def _stored_vectors(text: str) -> str:
    if text not in ("fp16", "fp32", "none"):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not fp16, fp32 or none; name the input files before this option"
        )
    return text


def add_device(parser: _Group) -> None:
    """Add the options for one device, its precision and its CPU threads."""
    text = "cpu, cuda or cuda:N; auto: the first GPU, or the CPU if there is no GPU; default: auto"
    parser.add_argument("--device", default="auto", metavar="NAME", help=text)
    text = (
        "floating-point precision; auto: the same as in a new run of predict on this device; "
        "default: %(default)s"
    )
    parser.add_argument("--precision", **_PRECISION, help=text)
    text = "CPU threads; more than 1 is faster with large encoders only; default: %(default)s"
    parser.add_argument("-t", "--threads", type=_cpu_threads, default=1, metavar="N", help=text)


def add_tiling(parser: _Group, default: str = "that of the bundle") -> None:
    """Add the options of windows and translation; their help texts show `default`."""
    default = f"default: {default}"
    text = f"window length in bases; {default}"
    parser.add_argument("--window", type=positive, metavar="BASES", help=text)
    text = "placement of windows: published (as in the published VirNucPro) or even (evenly spaced)"
    parser.add_argument("--tiling", choices=("published", "even"), help=f"{text}; {default}")
    text = f"genetic code: number of the NCBI translation table; {default}"
    parser.add_argument("--genetic-code", type=positive, metavar="N", help=text)


def job_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options given on the command line, as keyword arguments for a job."""
    given = vars(arguments)
    chosen = {name: given[name] for name in _JOB_OPTIONS if given.get(name) is not None}
    if (calls := call_options(arguments)) is not None:
        chosen["calls"] = calls
    if (extracts := _extract_options(arguments)) is not None:
        chosen["extracts"] = extracts
    return chosen
