"""Sentences of the report, in plain English."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

STATUSES: Final[Mapping[str, str]] = {
    "no_open_frame": "A stop codon interrupts every reading frame, so there is nothing to score.",
    "too_short": "The sequence is too short for a score.",
    "ambiguous_bases": "Too few of its letters are A, C, G or T.",
    "invalid_letters": "It contains letters that are not bases.",
    "too_long": "It has more letters than --max-record allows.",
    "quarantined": "Its computation failed repeatedly; see quarantine.tsv for the reason.",
    "missing": "It is not computed yet. Rerun the command of the run with --resume.",
}
"""Why a record has no score, by its status."""

REASONS: Final[Mapping[str, str]] = {
    "uncertain": "Its probability is between the thresholds of non-viral and viral.",
    "too_short": "It is shorter than the sequences for which the thresholds were chosen.",
    "few_windows": "Too few of its windows have a score.",
    "low_complexity": "It is a simple or tandem repeat, which can resemble anything.",
}
"""Why a call is ambiguous, by the column `reason`."""

_SPACE: Final = "\u00a0"
"""Space without a line break, between a number and what it counts."""


def bases(number: float) -> str:
    """Return a number of bases as text, such as ``1.2 Mb``."""
    for size, name in ((1e9, "Gb"), (1e6, "Mb"), (1e3, "kb")):
        if number >= size:
            return f"{number / size:.1f}{_SPACE}{name}"
    return f"{number:.0f}{_SPACE}bases"


def share(part: float, whole: float) -> str:
    """Return a share as text, such as ``9.8 %``; a hyphen if the whole is 0."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return f"<{_SPACE}0.1{_SPACE}%"
    digits = 0 if percent in (0, 100) else 1
    return f"{percent:.{digits}f}{_SPACE}%"


def _sequences(number: int) -> str:
    return "1 sequence" if number == 1 else f"{number:,} sequences"


def answer(samples: Sequence[Mapping[str, Any]], totals: Mapping[str, int]) -> tuple[str, str]:
    """Return the answer of the report as one sentence, and what else to know about it.

    `samples` are the entries of `virnucpro.report.html.counts.sample_counts`, `totals` their sums.
    """
    total, viral, provirus = totals["records"], totals["viral"], totals["provirus"]
    if not total:
        inputs = "inputs have" if len(samples) > 1 else "input has"
        return f"The {inputs} no sequences.", ""
    where = f" in {len(samples):,} samples" if len(samples) > 1 else ""
    if viral:
        verb = "is" if viral == 1 else "are"
        head = f"{viral:,} of {_sequences(total)}{where} {verb} called viral"
        shown = f"{bases(totals['viral_bases'])} of {bases(totals['bases'])}"
        head += f" ({share(viral, total)}; {shown})."
    else:
        shown = bases(totals["bases"])
        head = f"None of {_sequences(total)}{where} is called viral ({shown} of sequence)."
        if provirus:
            verb = "has a provirus candidate" if provirus == 1 else "have provirus candidates"
            head = f"{provirus:,} of {_sequences(total)}{where} {verb}, none is called viral."
    if provirus and viral:
        head += f" {_sequences(provirus)} with a provirus candidate."
    rest = []
    known = [sample for sample in samples if sample["expected"]]
    if len(samples) == 1 and known:
        text, warning = known[0]["expected"], known[0]["warning"]
        rest += [f"{text[0].upper()}{text[1:]}.", *([f"{warning}."] if warning else [])]
    elif known:
        false = sum(sample["expected_false"] for sample in known)
        rest.append(f"Expected false calls, at the assumed share of each sample: {false:,.0f}.")
    if ambiguous := totals["ambiguous"]:
        rest.append(f"{_sequences(ambiguous)} {'is' if ambiguous == 1 else 'are'} ambiguous.")
    if unscored := totals["not_scored"]:
        rest.append(f"{_sequences(unscored)} could not be scored.")
    return head, " ".join(rest)


def gap_sentences(sample: str, gaps: Mapping[str, int], *, working: bool) -> list[str]:
    """Return what makes the results of a run partial; empty for a complete run."""
    sentences = []
    if working:
        sentences.append(f"{sample}: a process works on this run now; its results may change.")
    if gaps["missing"]:
        sentences.append(
            f"{sample}: {_sequences(gaps['missing'])} not computed yet, listed in missing.tsv. "
            "Rerun the command of the run with --resume."
        )
    if gaps["quarantined"]:
        sentences.append(
            f"{sample}: the computation of {_sequences(gaps['quarantined'])} failed repeatedly, "
            "see quarantine.tsv."
        )
    return sentences
