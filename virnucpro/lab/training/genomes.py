"""Labelled genomes of a training, their groups and folds; labels that are refused."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from virnucpro.arrays import BoolArray, HashArray, IntArray
from virnucpro.console import counted, shortened
from virnucpro.errors import InputError
from virnucpro.lab.evaluation.input_table import Excluded
from virnucpro.lab.evaluation.labels import Source
from virnucpro.sequences.records import read_records
from virnucpro.sequences.translation import reverse_complement

_K: Final = 21
_SCALE: Final = 25
"""One of this many k-mers is in a sketch."""

_CONTAINED: Final = 0.5
_LEAST_HASHES: Final = 5
"""Records with fewer hashes in their sketch (shorter than about 150 bases) are compared exactly."""

_CODES: Final = np.full(256, 4, np.uint8)
_CODES[list(b"ACGT")] = range(4)
_PIECE: Final = 1 << 22
_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True, slots=True)
class Leak:
    """A record of which `share` is contained in other parts, most of it in the record `other`."""

    name: str
    other: str
    share: float


def sketch(sequence: bytes) -> HashArray:
    """Return the sketch of a sequence, ``(n,)`` uint64, ascending; equal for both strands.

    k-mers with other letters than A, C, G, T are left out.
    """
    step = _PIECE - _K + 1
    parts = [_hashes(sequence[i : i + _PIECE]) for i in range(0, max(1, len(sequence)), step)]
    return np.unique(np.concatenate(parts))


def _hashes(bases: bytes) -> HashArray:
    codes = _CODES[np.frombuffer(bases, np.uint8)]
    n = len(codes) - _K + 1
    if n < 1:
        return np.empty(0, np.uint64)
    forward, backward = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    unknown = np.concatenate(([0], np.cumsum(codes == 4)))
    digits = codes.astype(np.uint64) & np.uint64(3)
    for i in range(_K):
        forward = (forward << np.uint64(2)) | digits[i : i + n]
        backward |= (np.uint64(3) - digits[i : i + n]) << np.uint64(2 * i)
    words = np.minimum(forward, backward)[unknown[_K:] == unknown[:n]]
    mixed = (words ^ (words >> np.uint64(30))) * _MIX[0]  # splitmix64
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX[1]
    mixed ^= mixed >> np.uint64(31)
    chosen: HashArray = mixed[mixed < np.uint64((1 << 64) // _SCALE)]
    return chosen


def find_leaks(records: Iterable[tuple[str, str, bytes]]) -> Iterator[Leak]:
    """Yield each record that is equal or nearly equal to a part of records of another part.

    A record is found if it is contained in a longer one of another part, so a pair is found from
    the shorter record, whatever its part.

    Parameters
    ----------
    records
        Name, part and upper-case sequence of each record. Parts must not share sequences: the
        groups of a cross-validation, or the sides of a split. Sketches need about 20 bytes per 25
        bases.
    """
    names: list[str] = []
    parts: list[str] = []
    sketches: list[HashArray] = []
    exact: dict[bytes, int] = {}
    equal: dict[int, int] = {}
    for number, (name, part, sequence) in enumerate(records):
        names.append(name)
        parts.append(part)
        sketches.append(sketch(sequence))
        either_strand = min(sequence, reverse_complement(sequence))
        first = exact.setdefault(either_strand, number)
        if parts[first] != part:
            equal[number] = first
    known = _Hashes(sketches, parts)
    for number in np.union1d(known.suspects(), list(equal)).astype(np.int64).tolist():
        if number in equal:
            yield Leak(names[number], names[equal[number]], 1.0)
        else:
            share = float(known.shares[number])
            yield Leak(names[number], names[known.partner(number)], share)


class _Hashes:
    """The hashes of all sketches, with their owners."""

    def __init__(self, sketches: Sequence[HashArray], parts: Sequence[str]) -> None:
        self._sketches = sketches
        _, self._parts = np.unique(parts, return_inverse=True)
        self._sizes = np.array([len(hashes) for hashes in sketches], np.int64)
        values = np.concatenate([np.empty(0, np.uint64), *sketches])
        order = np.argsort(values, kind="stable")
        self._values = values[order]
        self._owners = np.repeat(np.arange(len(sketches), dtype=np.int32), self._sizes)[order]
        self.shares = self._foreign() / np.maximum(self._sizes, 1)

    def _foreign(self) -> IntArray:
        """Return for each record how many of its hashes occur in another part."""
        if not len(self._values):
            return np.zeros(len(self._sizes), np.int64)
        first = np.flatnonzero(np.diff(self._values, prepend=~self._values[0]))
        part = self._parts[self._owners]
        low, high = np.minimum.reduceat(part, first), np.maximum.reduceat(part, first)
        foreign = np.repeat(low != high, np.diff(first, append=len(self._values)))
        return np.bincount(self._owners[foreign], minlength=len(self._sizes))

    def suspects(self) -> IntArray:
        """Return the records of which a large share occurs in other parts."""
        return np.flatnonzero((self.shares >= _CONTAINED) & (self._sizes >= _LEAST_HASHES))

    def partner(self, record: int) -> int:
        """Return the record of another part that shares most hashes with `record`."""
        own = self._sketches[record]
        low = np.searchsorted(self._values, own)
        high = np.searchsorted(self._values, own, side="right")
        spans = zip(low.tolist(), high.tolist(), strict=True)
        owners = np.concatenate([self._owners[a:b] for a, b in spans])
        others = owners[self._parts[owners] != self._parts[record]]
        return int(np.bincount(others).argmax())


_SHOWN: Final = 5
_HELD_OUT: Final = ""
"""Part of all held-out records; the groups of the training set are the other parts."""


Group = tuple[str, str]
"""Kingdom and name of a group of related genomes: a virus family, or a genus of hosts."""

VIRUS = "virus"
"""Kingdom of all viral genomes."""


def are_viral(groups: Sequence[Group]) -> BoolArray:
    """Return ``(n,)`` bool: which groups are of viruses."""
    return np.array([kingdom == VIRUS for kingdom, _ in groups], np.bool_)


@dataclass(frozen=True, slots=True)
class Genome:
    """Labelled sequences that count as one genome.

    Attributes
    ----------
    name
        Name in the table of the training set.
    kingdom
        `VIRUS`, or the kingdom of a genome that is not viral.
    group
        Name of the group. Groups of the same name are in one fold, whatever the kingdom.
    source
        Class of the genome's windows.
    sequences
        Upper-case bases.
    records
        Name of the record of each sequence.
    folds
        Number of its fold by `GROUPS` and by `RELATIVES`; see `assign_folds`.
    """

    name: str
    kingdom: str
    group: str
    source: str
    sequences: tuple[bytes, ...]
    records: tuple[str, ...]
    folds: tuple[int, ...] = ()

    @property
    def bases(self) -> int:
        """Sum of the lengths."""
        return sum(map(len, self.sequences))

    @property
    def viral(self) -> bool:
        """Whether this is a virus."""
        return self.kingdom == VIRUS

    @property
    def key(self) -> Group:
        """The group, with the kingdom."""
        return self.kingdom, self.group


def by_group(genomes: Iterable[Genome]) -> dict[Group, list[Genome]]:
    """Return genomes by group, in a fixed order."""
    groups = defaultdict(list)
    for genome in genomes:
        groups[genome.key].append(genome)
    return dict(sorted(groups.items()))


GROUPS: Final = 0
"""Folds by group: a classifier without a fold has not seen the families and genera in it."""
RELATIVES: Final = 1
"""Folds by cluster of near relatives: a classifier without a fold has not seen the species of
viruses in it, but most of their families. Other genomes stay with their group."""


def assign_folds(genomes: Sequence[Genome], n_folds: int, seed: int) -> list[Genome]:
    """Return the genomes with their folds by `GROUPS` and by `RELATIVES`."""
    by_group = _folds(genomes, [genome.group for genome in genomes], n_folds, seed)
    units = near_relatives(genomes)
    if len({unit for genome, unit in zip(genomes, units, strict=True) if genome.viral}) < n_folds:
        units = [genome.group for genome in genomes]
    by_relatives = _folds(genomes, units, n_folds, seed)
    schemes = zip(genomes, by_group, by_relatives, strict=True)
    return [replace(genome, folds=(of, near)) for genome, of, near in schemes]


def _folds(genomes: Sequence[Genome], units: Sequence[str], n_folds: int, seed: int) -> list[int]:
    """Return the fold of each genome; those of one unit are in one fold.

    Units of a kingdom are sorted by size; each next `n_folds` units go to different folds. A unit
    that stands in several kingdoms is in one fold.
    """
    rng = np.random.default_rng(seed)
    sizes: dict[str, Counter[str]] = defaultdict(Counter)
    for genome, unit in zip(genomes, units, strict=True):
        sizes[genome.kingdom][unit] += genome.bases
    folds: dict[str, int] = {}
    for kingdom in sorted(sizes, key=lambda name: (len(sizes[name]), name)):
        left = {unit: size for unit, size in sizes[kingdom].items() if unit not in folds}
        largest_first = sorted(left, key=lambda unit: (-left[unit], unit))
        for start in range(0, len(largest_first), n_folds):
            block = largest_first[start : start + n_folds]
            order = rng.permutation(n_folds).tolist()
            folds.update(zip(block, order[: len(block)], strict=True))
    return [folds[unit] for unit in units]


_RELATED: Final = 0.15
"""Least share of common 21-mers of near relatives, about 91 % identity."""
_NEIGHBOURS: Final = 12
"""A genome with a 21-mer is compared with this many next ones that have it."""


def near_relatives(genomes: Sequence[Genome]) -> list[str]:
    """Return the unit of each genome: for viruses a cluster of near relatives, else the group.

    Viruses are in one cluster if they share `_RELATED` of the 21-mers of the smaller one, directly
    or through others (single linkage).
    """
    units = [genome.group for genome in genomes]
    viruses = [number for number, genome in enumerate(genomes) if genome.viral]
    sketches = [
        np.unique(np.concatenate([*map(sketch, genomes[number].sequences)])) for number in viruses
    ]
    sizes, n = np.array([*map(len, sketches)]), len(viruses)
    values, owners = np.concatenate(sketches), np.repeat(np.arange(n), sizes)
    order = np.argsort(values, kind="stable")
    values, owners = values[order], owners[order]
    steps = range(1, _NEIGHBOURS + 1)
    same = [np.flatnonzero(values[step:] == values[:-step]) for step in steps]
    pairs = [owners[at] * n + owners[at + step] for step, at in zip(steps, same, strict=True)]
    both, shared = np.unique(np.concatenate(pairs), return_counts=True)
    first, second = np.divmod(both, n)
    near = shared >= _RELATED * np.minimum(sizes[first], sizes[second])
    first, second, cluster = first[near], second[near], np.arange(n)
    while (cluster[first] != cluster[second]).any():
        lowest = np.minimum(cluster[first], cluster[second])
        np.minimum.at(cluster, first, lowest)
        np.minimum.at(cluster, second, lowest)
    for number, of in zip(viruses, cluster.tolist(), strict=True):
        units[number] = f"relatives of {genomes[viruses[of]].name}"
    return units


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
        wanted = "" if source.record is None else f" (record {shortened(source.record)})"
        raise InputError(f"{source.where}: {source.path} has no labelled sequence{wanted}")
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
        groups = {genome.group for genome in genomes if genome.viral == viral}
        if len(groups) < n_folds:
            side = "viral" if viral else "non-viral"
            raise InputError(
                f"the training set has {counted(len(groups), 'group')} of {side} sequences; the "
                f"cross-validation needs at least {n_folds}. Label more groups."
            )
    sides = [
        {genome.source for genome in genomes if genome.viral == side} for side in (False, True)
    ]
    if both := sorted(sides[0] & sides[1]):
        raise InputError(
            f"the class {both[0]!r} has viral and non-viral sequences. Give each class one label."
        )


def require_disjoint(sources: Sequence[Source], held_out: Sequence[Source]) -> None:
    """Raise InputError if a group is on both sides of the split."""
    known = {source.group for source in sources}
    both = sorted({source.group for source in held_out if source.group and source.group in known})
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
    for side, group_of in ((genomes, lambda genome: genome.group), (held_out, lambda _: _HELD_OUT)):
        for genome in side:
            for name, sequence in zip(genome.records, genome.sequences, strict=True):
                shown = name
                if name != genome.name:
                    shown = f"{shortened(name)} of {shortened(genome.name)}"
                labels[shown] = genome.viral
                records.append((shown, group_of(genome), sequence))
    leaks = list(find_leaks(records))
    if not leaks:
        return
    pairs = "; ".join(
        f"{leak.name} ({leak.share:.0%}) in {leak.other}"
        + (" with the other label" if labels[leak.name] != labels[leak.other] else "")
        for leak in leaks[:_SHOWN]
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
