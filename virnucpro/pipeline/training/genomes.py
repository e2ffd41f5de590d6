"""Read the labelled genomes of a training, and refuse labels that make its figures worthless."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from virnucpro.console import shortened
from virnucpro.errors import InputError
from virnucpro.evaluation.fragments import Excluded
from virnucpro.evaluation.labels import Source
from virnucpro.sequences.records import read_records
from virnucpro.training.groups import VIRUS, Genome
from virnucpro.training.leaks import find_leaks

__all__ = ["read_genomes", "refuse_leaks", "require_disjoint", "require_usable"]

_SHOWN: Final = 5
_HELD_OUT: Final = ""
"""Part of all held-out records; the groups of the training set are the other parts."""


def read_genomes(sources: Sequence[Source], excluded: Excluded) -> list[Genome]:
    """Read the labelled sequences, without excluded regions.

    A source with a group is one genome. Without a group, each record is a genome, and a group of
    its own.

    Raises
    ------
    InputError
        If a file cannot be read, or a source has no labelled sequence.
    """
    return [genome for source in sources for genome in _genomes_of(source, excluded)]


def _genomes_of(source: Source, excluded: Excluded) -> Iterator[Genome]:
    if not source.viral and source.kingdom == VIRUS:
        raise InputError(
            f"{source.where}: the kingdom {VIRUS!r} is for viral sequences, but this label is "
            "non-viral. Correct the label or the kingdom."
        )
    pieces: list[tuple[str, bytes]] = []
    for record in read_records(str(source.path)):
        if source.record in (None, record.name):
            regions = excluded.get(record.name, ())
            pieces += [(record.name, piece) for piece in _without(record.sequence, regions)]
    if not pieces:
        raise InputError(f"{source.where}: {source.path} has no labelled sequence")
    name = source.path.name.partition(".")[0] if source.record is None else source.record
    if source.group is not None:
        yield _genome(source, name, source.group, pieces)
        return
    by_record = defaultdict(list)
    for piece in pieces:
        by_record[piece[0]].append(piece)
    for record_name, own in by_record.items():
        yield _genome(source, record_name, f"{name}/{record_name}", own)


def _genome(source: Source, name: str, group: str, pieces: Sequence[tuple[str, bytes]]) -> Genome:
    kingdom = VIRUS if source.viral else source.kingdom
    records, sequences = zip(*pieces, strict=True)
    return Genome(name, kingdom, group, source.source_class or kingdom, sequences, records)


def _without(sequence: bytes, regions: Sequence[tuple[int, int]]) -> list[bytes]:
    starts = [0, *(end for _, end in sorted(regions))]
    ends = [*(start for start, _ in sorted(regions)), len(sequence)]
    pieces = (sequence[a:b] for a, b in zip(starts, ends, strict=True))
    return [piece for piece in pieces if piece]


def require_usable(genomes: Sequence[Genome], n_folds: int) -> None:
    """Check that each label has enough groups, and each class one label.

    Raises
    ------
    InputError
        If a label has fewer groups than folds, or a class has viral and non-viral genomes.
    """
    for viral in (True, False):
        groups = {one.group for one in genomes if one.viral == viral}
        if len(groups) < n_folds:
            raise InputError(
                f"the training set has {len(groups)} groups of {'viral' if viral else 'non-viral'} "
                f"sequences; the cross-validation needs at least {n_folds}. Label more groups."
            )
    sides = [{one.source for one in genomes if one.viral == side} for side in (False, True)]
    if both := sorted(sides[0] & sides[1]):
        raise InputError(
            f"the class {both[0]!r} has viral and non-viral sequences. Give each class one label."
        )


def require_disjoint(sources: Sequence[Source], held_out: Sequence[Source]) -> None:
    """Raise InputError if a group is on both sides of the split."""
    known = {one.group for one in sources}
    both = sorted({one.group for one in held_out if one.group and one.group in known})
    if both:
        shown = ", ".join(both[:_SHOWN])
        raise InputError(
            f"{len(both)} groups are on both sides of the split: {shown}. Put all sequences of a "
            "group into one split."
        )


def refuse_leaks(
    genomes: Sequence[Genome],
    held_out: Sequence[Genome],
    warn: Callable[[str], object] | None = None,
) -> None:
    """Check that no record is equal or nearly equal to a part of a record that it must not know.

    These are the records of other groups of the training set, of which some are in other folds, and
    those of the other side of the split.

    Parameters
    ----------
    warn
        Called with a text instead of the error; None to raise the error.

    Raises
    ------
    InputError
        If there are such records; the message names pairs of them.
    """
    labels: dict[str, bool] = {}
    records: list[tuple[str, str, bytes]] = []
    for side, group_of in ((genomes, lambda one: one.group), (held_out, lambda _: _HELD_OUT)):
        for one in side:
            for name, sequence in zip(one.records, one.sequences, strict=True):
                shown = f"{shortened(name)} of {shortened(one.name)}" if name != one.name else name
                labels[shown] = one.viral
                records.append((shown, group_of(one), sequence))
    leaks = list(find_leaks(records))
    if not leaks:
        return
    pairs = "; ".join(
        f"{one.name} ({one.share:.0%}) in {one.other}"
        + (" with the other label" if labels[one.name] != labels[one.other] else "")
        for one in leaks[:_SHOWN]
    )
    message = (
        f"{len(leaks)} sequences are equal or nearly equal to parts of sequences of other groups "
        f"or of the other side of the split (share of shared 21-mers): {pairs}"
    )
    if warn is None:
        raise InputError(
            f"{message}. Put similar sequences into one group and one split, correct their labels, "
            "leave regions out with --exclude, or accept them with --allow-similar."
        )
    warn(message)
