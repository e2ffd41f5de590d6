"""Plan a run that several machines compute: write its index and its first round of work.

Then start virnucpro work RUN on any number of machines, or virnucpro submit RUN on a cluster, and
write the tables with virnucpro merge RUN.
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.console import say
from virnucpro.errors import UsageError
from virnucpro.option import positive, seconds
from virnucpro.run.execution import Execution
from virnucpro.run.options import EmbedOptions, PredictOptions
from virnucpro.run.reporter import open_reporter
from virnucpro.temporary import owned_prefix

if TYPE_CHECKING:
    from virnucpro.cluster.plan import Plan
    from virnucpro.run.job import Job
    from virnucpro.run.reporter import Reporter
    from virnucpro.runtime.devices import Kind

_MOST_RANKS = 65_536


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``plan``."""
    options.add_inputs(parser)
    options.add_outdir(parser, "RUN", "folder of the run, on storage that all machines share")
    add_plan_options(parser)
    text = "print the plan, and write no file outside of a temporary folder"
    parser.add_argument("--dry-run", action="store_true", help=text)
    options.add(parser, Execution, only=("force", "lock"))
    options.add_quiet(parser)


def rank_count(text: str) -> int:
    """Return a planned number of workers from the command line."""
    count = positive(text)
    if count > _MOST_RANKS:
        raise argparse.ArgumentTypeError(f"{count:,}: give at most {_MOST_RANKS:,} workers")
    return count


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the model and of the planned workers."""
    text = "planned number of workers (devices) of all machines together; default: %(default)s"
    parser.add_argument("--ranks", type=rank_count, default=16, metavar="N", help=text)
    text = "kind of the workers' devices; default: cuda if this machine has a GPU, else cpu"
    parser.add_argument("--kind", choices=("cpu", "cuda"), help=text)
    text = "rows per second of one worker (sequences/s of virnucpro bench there): print hours"
    parser.add_argument("--throughput", type=seconds, metavar="ROWS", help=text)
    options.add(parser, PredictOptions)
    options.add(parser, EmbedOptions, only=("encoder", "force_alphabet"))


def plan_from(arguments: argparse.Namespace, outdir: Path, reporter: "Reporter") -> "Plan":
    """Create the run that the options describe, in `outdir`."""
    from virnucpro.cluster.plan import plan_run
    from virnucpro.runtime.devices import list_gpus

    kind: Kind = arguments.kind or ("cuda" if list_gpus() else "cpu")
    job, model = _job(arguments)
    execution = Execution(**options.chosen(Execution, arguments) | {"outdir": outdir})
    return plan_run(job, execution, reporter, workers=arguments.ranks, kind=kind, model=model)


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``plan``; return its exit code."""
    with open_reporter(quiet=arguments.quiet) as reporter:
        if not arguments.dry_run:
            plan = plan_from(arguments, arguments.outdir, reporter)
        else:
            with tempfile.TemporaryDirectory(prefix=owned_prefix("plan")) as folder:
                plan = plan_from(arguments, Path(folder) / "run", reporter)
                plan = replace(plan, root=arguments.outdir)
        for line in _lines(plan, arguments):
            print(line)
        for warning in plan.warnings:
            say(f"warning: {warning}")
    return ExitCode.OK


def _job(arguments: argparse.Namespace) -> "tuple[Job, str]":
    """Return the job, and the bundle or encoder for the tasks: a name, or an absolute path."""
    from virnucpro.run.embed_job import embed_job
    from virnucpro.run.predict_job import predict_job

    predicts = options.chosen(PredictOptions, arguments)
    embeds = options.chosen(EmbedOptions, arguments)
    if "encoder" not in embeds:
        if "force_alphabet" in embeds:
            raise UsageError("--force-alphabet is for --encoder: remove it")
        model = predicts.get("bundle", PredictOptions.bundle)
        return predict_job(arguments.inputs, **predicts), model_name(model)
    if "bundle" in predicts:
        raise UsageError("give --bundle or --encoder: a run has scores, or vectors of one encoder")
    if other := sorted(predicts.keys() - embeds):
        raise UsageError(f"--{other[0].replace('_', '-')} has no effect with --encoder: remove it")
    return embed_job(arguments.inputs, **embeds), model_name(embeds["encoder"])


def model_name(given: str) -> str:
    """Return a bundle or encoder as tasks in other folders need it: a path is absolute."""
    return str(Path(given).absolute()) if Path(given).exists() else given


def _lines(plan: "Plan", arguments: argparse.Namespace) -> Iterator[str]:
    yield f"run\t{plan.root}"
    yield f"units\t{plan.units:,} of at most {plan.unit_rows:,} rows"
    yield f"rows\t{plan.rows:,} with {plan.positions:,} residues or bases"
    yield f"precision\t{plan.precision}"
    yield f"workers\t{plan.workers:,} with {plan.units / plan.workers:,.1f} units each"
    for name, count in plan.n_bytes.items():
        yield f"{name}\t{count / 1e9:,.3f} GB"
    if arguments.throughput:
        hours = plan.rows / arguments.throughput / plan.workers / 3600
        yield f"hours\t{hours:,.2f} at {arguments.throughput:g} rows/s per worker"
    if not arguments.dry_run:
        yield f"next\tvirnucpro submit {plan.root}, or virnucpro work {plan.root} --task K/N"
