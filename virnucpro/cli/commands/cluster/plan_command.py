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
from virnucpro.cli.progress import open_reporter
from virnucpro.console import say
from virnucpro.errors import UsageError
from virnucpro.pipeline.execution import Execution

if TYPE_CHECKING:
    from virnucpro.pipeline.cluster.plan import Plan
    from virnucpro.pipeline.jobs.job import Job, Reporter
    from virnucpro.runtime.devices import Kind

__all__ = ["add_options", "add_plan_options", "model_name", "plan_from", "rank_count"]

_BUNDLE = "mini"
"""Default of the option ``--bundle``."""
_MOST_RANKS = 65_536


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``plan``."""
    options.add_inputs(parser)
    options.add_outdir(parser, "RUN", "folder of the run, on storage that all machines share")
    add_plan_options(parser)
    text = "print the plan, and write no file outside of a temporary folder"
    parser.add_argument("--dry-run", action="store_true", help=text)
    parser.add_argument("--force", action="store_true", help="delete the run in RUN")
    options.add_quiet(parser)
    options.add_no_lock(parser)
    parser.set_defaults(run=_run)


def rank_count(text: str) -> int:
    """Return a planned number of workers from the command line."""
    count = options.positive(text)
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
    parser.add_argument("--throughput", type=options.seconds, metavar="ROWS", help=text)
    options.add_encoder(parser, required=False)
    options.add_bundle(parser)
    options.add_tiling(parser)
    options.add_fallback(parser)
    options.add_min_length(parser)
    options.add_strict(parser)
    options.add_force_alphabet(parser)
    options.add_calls(parser)
    options.add_extracts(parser)
    options.add_precision(parser)
    options.add_stored_vectors(parser)


def plan_from(arguments: argparse.Namespace, outdir: Path, reporter: "Reporter") -> "Plan":
    """Create the run that the options describe, in `outdir`."""
    from virnucpro.pipeline.cluster.plan import plan_run
    from virnucpro.runtime.devices import list_gpus

    kind: Kind = arguments.kind or ("cuda" if list_gpus() else "cpu")
    job, model = _job(arguments)
    execution = Execution(outdir=outdir, force=arguments.force, lock=arguments.lock)
    return plan_run(job, execution, reporter, workers=arguments.ranks, kind=kind, model=model)


def _run(arguments: argparse.Namespace) -> int:
    with open_reporter(quiet=arguments.quiet) as reporter:
        if not arguments.dry_run:
            plan = plan_from(arguments, arguments.outdir, reporter)
        else:
            with tempfile.TemporaryDirectory(prefix="virnucpro-plan-") as folder:
                plan = plan_from(arguments, Path(folder) / "run", reporter)
                plan = replace(plan, root=arguments.outdir)
        for line in _lines(plan, arguments):
            print(line)
        for warning in plan.warnings:
            say(f"warning: {warning}")
    return ExitCode.OK


def _job(arguments: argparse.Namespace) -> "tuple[Job, str]":
    """Return the job, and the bundle or encoder for the tasks: a name, or an absolute path."""
    from virnucpro.pipeline.jobs.embed_job import embed_job
    from virnucpro.pipeline.predict import predict_job

    given = options.job_options(arguments)
    model = model_name(str(arguments.encoder or arguments.bundle))
    if arguments.encoder is not None and arguments.bundle != _BUNDLE:
        raise UsageError("give --bundle or --encoder: a run has scores, or vectors of one encoder")
    if arguments.encoder is None:
        if "force_alphabet" in given:
            raise UsageError("--force-alphabet is for --encoder: remove it")
        return predict_job(arguments.inputs, **given), model
    del given["bundle"]
    other = sorted({*given} - {"encoder", "precision", "embeddings", "strict", "force_alphabet"})
    if other:
        raise UsageError(f"--{other[0].replace('_', '-')} has no effect with --encoder: remove it")
    return embed_job(arguments.inputs, **given), model


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
