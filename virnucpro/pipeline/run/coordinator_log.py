"""The story of a launch, a line each: in the coordinator's log, and to whoever watches."""

from collections.abc import Mapping, Sequence

from virnucpro.encoders.memory.token_budget import is_fitted
from virnucpro.pipeline.jobs.job import Reporter
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.events import EventLog, LogFormat
from virnucpro.runtime.status import WorkerStatus

__all__ = ["CoordinatorLog", "step_log"]


def step_log(run: RunDirectory, rank: int | None, log_format: LogFormat) -> EventLog:
    """Open the log of the steps that a rank takes, or the coordinator where `rank` is None."""
    suffix = "log" if log_format == "text" else "jsonl"
    facts = {} if rank is None else {"rank": rank}
    return EventLog(run.steps(rank, suffix), log_format, facts)


class CoordinatorLog:
    """Writes down what becomes of the ranks.

    Parameters
    ----------
    run
        Gets ``logs/coordinator.log``, or ``.jsonl``.
    reporter
        Hears of failures as warnings, of the rest as stages.
    """

    def __init__(self, run: RunDirectory, reporter: Reporter, log_format: LogFormat) -> None:
        self._run = run
        self._reporter = reporter
        run.logs.mkdir(exist_ok=True)
        self._log = step_log(run, None, log_format)

    def began(self, launch: int, units: int, devices: Sequence[str]) -> None:
        """Tell that a launch begins."""
        text = f"computing {units:,} units on {len(devices)} ranks"
        self._reporter.stage(text)
        self._log.write(
            "launch",
            f"launch {launch}: {text} ({', '.join(devices)})",
            launch=launch,
            units=units,
            devices=list(devices),
        )

    def ended(self, status: WorkerStatus) -> None:
        """Tell that a rank has done its share, or was stopped."""
        text = f"rank {status.rank}: {status.state} at {status.done:,}/{status.total:,} rows"
        if status.reason:
            text += f": {status.reason}"
        self._log.write(str(status.state), text, rank=status.rank, attempt=status.attempt)

    def failed(self, status: WorkerStatus, next_step: str) -> None:
        """Tell that a rank failed, and what is done about it."""
        attempt = f" (attempt {status.attempt})" if status.attempt > 1 else ""
        text = f"rank {status.rank} failed{attempt}: {status.reason}"
        log = self._run.log(status.rank).relative_to(self._run.root)
        self._reporter.warn(f"{text} (see {log}); {next_step}")
        self._log.write(
            "failed",
            f"{text}; {next_step}",
            rank=status.rank,
            attempt=status.attempt,
            exit=status.exit,
            kind=status.kind,
            reason=status.reason,
            place=list(status.place),
            done=status.done,
            next=next_step,
        )

    def dealt(self, rank: int, units: Sequence[int], whose: str) -> None:
        """Tell that an idle rank takes units over."""
        text = f"rank {rank} takes {len(units):,} units over from {whose}"
        self._reporter.stage(text)
        self._log.write("dealt", text, rank=rank, units=list(units))

    def learnt(self, rank: int, device: str, budgets: Mapping[str, int]) -> None:
        """Tell that a rank has learnt how large batches may be."""
        limits = ", ".join(
            f"{key} {tokens:,}" for key, tokens in budgets.items() if not is_fitted(key)
        )
        text = f"rank {rank}: batches on {device} take at most (tokens): {limits or 'as before'}"
        self._log.write("learnt", text, rank=rank, device=device, budgets=dict(budgets))

    def budgets_not_kept(self, error: OSError) -> None:
        """Tell that what was learnt is lost to the next launch."""
        self._reporter.warn(f"{self._run.budgets} is out of date: {error.strerror}")

    def over(self, launch: int, seconds: float, failures: int) -> None:
        """Tell that a launch is over."""
        self._log.write(
            "over",
            f"launch {launch} is over after {seconds:.1f} s with {failures:,} failures of ranks",
            launch=launch,
            seconds=seconds,
            failures=failures,
        )
