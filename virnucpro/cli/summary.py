"""Closing summary of a run: how many sequences, their calls, what was not scored and why."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from virnucpro.classifier.call_options import CallOptions

if TYPE_CHECKING:
    from virnucpro.pipeline.run.outputs import Outcome

__all__ = ["quarantine_warning", "recomputed_warning", "summary"]

_CALLS: Final = ("viral", "non-viral", "ambiguous")


def summary(outcome: "Outcome") -> Iterator[str]:
    """Yield the lines of the summary."""
    total = sum(outcome.records.values())
    sequences = f"{total:,} sequence{'s' * (total != 1)}"
    without = {
        name.replace("_", " "): count
        for name, count in outcome.records.items()
        if name != "scored" and count
    }
    reasons = ", ".join(f"{count:,} {name}" for name, count in without.items())
    left = sum(without.values())
    if outcome.calls:
        parts = [f"{outcome.calls.get(call, 0):,} {call}" for call in _CALLS]
        what = "not scored"
    else:
        parts = [f"{outcome.records.get('scored', 0):,} with a vector"]
        what = "without a vector"
    parts += [f"{left:,} {what} ({reasons})"] if left else []
    yield f"{sequences}: {', '.join(parts)}" if total else "0 sequences"
    if outcome.rule not in ("", CallOptions().text):
        yield f"rule of the calls: {outcome.rule}"
    names = ", ".join(path.name for path in outcome.files)
    yield f"written to {outcome.root}: {names}"


def quarantine_warning(outcome: "Outcome") -> str:
    """Return the warning about rows that have no result for good."""
    text = (
        f"{outcome.rows_quarantined:,} rows are quarantined: they have no result, and --resume "
        f"does not recompute them. The reasons are in {outcome.root / 'quarantine.tsv'}."
    )
    if not outcome.rows_overflowing:
        return text
    return (
        f"{text} {outcome.rows_overflowing:,} of these rows exceed the range of fp16. To keep "
        "their vectors, start a new run with --embeddings fp32."
    )


def recomputed_warning(outcome: "Outcome") -> str:
    """Return the warning about rows that were computed again at another precision."""
    rows = sum(outcome.again.values())
    precisions = ", ".join(f"{count:,} at {name}" for name, count in outcome.again.items())
    advice = {
        "fp16": "To avoid such rows, start a new run with --precision bf16 or fp32.",
        "bf16": "To avoid such rows, start a new run with --precision fp32.",
        "fp32": "Such errors at fp32 can be hardware errors: check the device.",
    }
    return (
        f"the vectors of {rows:,} rows contained NaN or infinity at {outcome.precision} in a "
        f"batch. These rows were recomputed one by one: {precisions}. {advice[outcome.precision]}"
    )
