"""Options of the command line: those that dataclasses declare, and those that commands share."""

import argparse
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final

from virnucpro.errors import UsageError
from virnucpro.option import Option, cpu_threads, help_text, options_of

_GROUPS: Final = (
    *("model", "network", "calls", "sequences", "windows", "vectors", "inputs", "further outputs"),
    *("existing run", "machine", "failed workers"),
)
"""Groups of options in the order of the help: first those that decide about the results."""


def add(
    parser: argparse.ArgumentParser,
    *declared: type,
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    title: str = "",
) -> None:
    """Add options that dataclasses declare; an option that is not given is not in the namespace.

    Parameters
    ----------
    declared
        Dataclasses; of two options of one name, the first counts.
    only
        Names of the options to add, none of which is required; empty for all.
    without
        Names of options that have no effect in this command.
    title
        Title of one group for all of these options; "" for the groups of the options.
    """
    options: dict[str, tuple[type, Option]] = {}
    for owner in declared:
        for name, known in options_of(owner).items():
            if name not in without and (not only or name in only):
                options.setdefault(name, (owner, known))
    required = {field.name for field in fields(declared[0]) if field.default is MISSING}
    groups = sorted(options.items(), key=lambda item: _GROUPS.index(item[1][1].group))
    for name, (owner, known) in groups:
        group = _group(parser, title or known.group)
        text = help_text(owner, name, known) + "; may be repeated" * known.repeated
        keywords = _keywords(owner, name, known)
        if not only and name in required:
            keywords["required"] = True
        group.add_argument(*known.flags, dest=name, help=text, **keywords)
    offered = parser.get_default("offered") or frozenset()
    parser.set_defaults(offered=offered | options.keys())


class Once(argparse.Action):
    """Store the value of an option that takes one, and refuse a second value."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        _flag: str | None = None,
    ) -> None:
        """Store `values`; raise ArgumentError if another value is there."""
        if getattr(namespace, self.dest, self.default) is not self.default:
            raise argparse.ArgumentError(self, "this command takes one value, not several")
        setattr(namespace, self.dest, values)


def _group(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    known = {group.title: group for group in parser._action_groups}  # noqa: SLF001 - not public
    return known.get(title) or parser.add_argument_group(title)


def _keywords(declared: type, name: str, option: Option) -> dict[str, Any]:
    field = next(member for member in fields(declared) if member.name == name)
    keywords: dict[str, Any] = {"default": argparse.SUPPRESS}
    if option.metavar is None and option.choices is None:
        return keywords | {"action": "store_const", "const": not field.default}
    keywords |= {"metavar": option.metavar, "choices": option.choices, "type": option.parse}
    if option.const is not None:
        keywords |= {"nargs": "?", "const": option.const}
    if option.repeated:
        keywords["action"] = "append"
    elif name == "bundle":
        keywords["action"] = Once
    return keywords


def chosen(declared: type, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a dataclass that are given on the command line, with their values."""
    given = vars(arguments)
    return {field.name: given[field.name] for field in fields(declared) if field.name in given}


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the argument for the input files."""
    text = "FASTA or FASTQ files, plain or compressed (gz, bz2, xz, zst), or SAM, BAM, CRAM; - for "
    text += "standard input"
    parser.add_argument("inputs", nargs="+", metavar="FASTA", help=text)


def add_labelled(parser: argparse.ArgumentParser, split: str) -> argparse._ArgumentGroup:
    """Add the options of labelled sequences; `split` is the help of ``--split``."""
    group = parser.add_argument_group("labelled sequences")
    text = (
        "tab-separated table with the columns file (relative to the table), label (viral or "
        "non-viral), group (related sequences, such as a virus family), and optionally split, "
        "kingdom, class, record"
    )
    group.add_argument("--labels", type=Path, metavar="TSV", help=text)
    group.add_argument("--split", metavar="NAME", help=split)
    text = "FASTA files of viral sequences, instead of --labels; each record is a group"
    group.add_argument("--viral", type=Path, nargs="+", default=(), metavar="FASTA", help=text)
    text = "FASTA files of non-viral sequences; each file is a kingdom, each record a group"
    group.add_argument("--non-viral", type=Path, nargs="+", default=(), metavar="FASTA", help=text)
    text = "BED file (record, start, end) of regions to leave out, such as prophages of hosts"
    group.add_argument("--exclude", type=Path, metavar="BED", help=text)
    return group


def are_labelled_files(arguments: argparse.Namespace, *of_table: str) -> bool:
    """Return whether labelled sequences are given as FASTA files, not as a table.

    Parameters
    ----------
    of_table
        Options that select rows of a table.

    Raises
    ------
    UsageError
        If both or none are given, or files with an option of a table.
    """
    files = bool(arguments.viral or arguments.non_viral)
    if files == (arguments.labels is not None):
        raise UsageError("give either --labels TSV, or both --viral FASTA and --non-viral FASTA")
    for name in of_table:
        if files and getattr(arguments, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} selects rows of --labels; remove it, or give --labels")
    return files


def add_outdir(parser: argparse.ArgumentParser, metavar: str, text: str) -> None:
    """Add the option for the output folder."""
    parser.add_argument("-o", "--outdir", type=Path, required=True, metavar=metavar, help=text)


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add the option that turns off progress messages."""
    parser.add_argument("-q", "--quiet", action="store_true", help="print warnings and errors only")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option for JSON on standard output."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_device(parser: argparse.ArgumentParser) -> None:
    """Add the options for one device, its precision and its CPU threads, without defaults."""
    text = "cpu, cuda or cuda:N; auto: the first GPU, or the CPU if there is no GPU; default: auto"
    parser.add_argument("--device", metavar="NAME", help=text)
    text = (
        "floating-point precision; auto: the same as in a new run of predict on this device; "
        "default: %(default)s"
    )
    choices = ("auto", "fp32", "fp16", "bf16")
    parser.add_argument("--precision", choices=choices, help=text)
    text = "CPU threads; more than 1 is faster with large encoders only; default: %(default)s"
    parser.add_argument("-t", "--threads", type=cpu_threads, metavar="N", help=text)
