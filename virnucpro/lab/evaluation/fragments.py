"""Cut labelled sequences into fragments of given lengths.

The fragments of a record do not overlap: they are a random sample of tiles, whose first tile starts
at a random base. Each fragment is of a random strand. A group gets at most a fixed number of
fragments per length. The genomes (files) of a group take turns, so that a file with many records
does not outweigh the others.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from virnucpro.console import printable, shortened
from virnucpro.errors import InputError
from virnucpro.lab.evaluation.input_table import Excluded
from virnucpro.lab.evaluation.labels import CLASS_NAMES, Source
from virnucpro.lab.groups import GroupKey
from virnucpro.sequences.records import Record, read_records

WHOLE: Final = "whole"
"""Length class of records that are not cut."""
LEAST_BASES: Final = 0.9
"""Least share of A, C, G and T in a fragment; tiles with a smaller share are skipped."""

_DIGEST_BYTES: Final = 4

_COMPLEMENT: Final = bytes.maketrans(b"ACGTRYKMSWBDHVN", b"TGCAYRMKSWVHDBN")


@dataclass(frozen=True, slots=True)
class Fragment:
    """Name, label and origin of a fragment.

    Attributes
    ----------
    name
        Unique name, which ends with a digest of the bases; the record's name for a whole record.
    length
        Length class: a number of bases as text, or ``whole``.
    start, end
        Position in the record, 1-based and inclusive.
    strand
        ``+`` or ``-``.
    """

    name: str
    length: str
    viral: bool
    kingdom: str
    group: str
    file: str
    record: str
    start: int
    end: int
    strand: str


@dataclass(slots=True)
class Cut:
    """Fragments of all lengths.

    Attributes
    ----------
    sequences
        Bases of each fragment, by length class.
    groups
        All groups of the sources.
    """

    sequences: dict[str, list[tuple[Fragment, bytes]]] = field(default_factory=dict)
    groups: set[GroupKey] = field(default_factory=set)

    def fragments(self, length: str) -> list[Fragment]:
        """Return the fragments of a length class, in the order of the files."""
        return [fragment for fragment, _ in self.sequences[length]]

    def groups_without(self, length: str) -> list[GroupKey]:
        """Return the groups that have no fragment of a length class."""
        return sorted(self.groups - set(map(group_key, self.fragments(length))))


@dataclass(frozen=True, slots=True)
class _Tile:
    """Place of a fragment; `number` counts the records of the file from 0."""

    number: int
    record: str
    start: int
    end: int
    backward: bool


_Numbered: TypeAlias = tuple[int, Record]
_Genomes: TypeAlias = dict[tuple[str, str], list[_Tile]]
"""Tiles by file and name of the genome."""


def group_key(fragment: Fragment) -> GroupKey:
    """Return what identifies the fragment's group: class, kingdom and group."""
    return fragment.viral, fragment.kingdom, fragment.group


def cut(
    sources: Sequence[Source],
    lengths: Sequence[str],
    *,
    per_group: int,
    per_class: int,
    seed: int,
    excluded: Excluded | None = None,
) -> Cut:
    """Cut all sources into fragments; equal arguments give equal fragments.

    Parameters
    ----------
    lengths
        Numbers of bases as text, or ``whole``.
    per_group
        Maximum number of fragments per group and length.
    per_class
        Maximum number of fragments per class and length. Many groups share it equally; if there are
        more groups than fragments, the groups are a random sample.
    excluded
        Regions that no fragment overlaps, such as prophages of hosts. A whole record with such a
        region is skipped.

    Returns
    -------
    Fragments of the lengths for which both classes have one; the other lengths are missing.

    Raises
    ------
    InputError
        If a file cannot be read, a labelled record does not exist, a record is its own group in
        both classes, or whole records share a name.
    """
    result = Cut()
    # bases are read again for the chosen tiles: all tiles of many genomes do not fit into memory
    tiles: dict[str, dict[GroupKey, _Genomes]] = {length: {} for length in lengths}
    for path, by_record in _by_file(sources).items():
        for key, genome, records in _genomes(path, by_record):
            result.groups.add(key)
            for length in lengths:
                dice = _dice(seed, length, path.name, genome)
                if tiles_of_genome := _tiles(records, length, per_group, dice, excluded or {}):
                    tiles[length].setdefault(key, {})[str(path), genome] = tiles_of_genome
    wanted: dict[str, list[tuple[str, int, _Tile]]] = defaultdict(list)
    for length in lengths:
        _check_groups(tiles[length])
        chosen = _chosen(tiles[length], length, per_group, per_class, seed)
        if {fragment.viral for fragment, _ in chosen} == {True, False}:
            result.sequences[length] = [(fragment, b"") for fragment, _ in chosen]
            _check_names(result.fragments(length))
            for place, (fragment, tile) in enumerate(chosen):
                wanted[fragment.file].append((length, place, tile))
    for file, places in wanted.items():
        again = list(read_records(file))
        for length, place, tile in places:
            fragment, _ = result.sequences[length][place]
            bases = _bases(again[tile.number], tile)
            result.sequences[length][place] = _named_by_bases(fragment, bases), bases
    return result


def _named_by_bases(fragment: Fragment, bases: bytes) -> Fragment:
    """Add a digest of the bases to the name, so that tables of other fragments do not match."""
    if fragment.length == WHOLE:
        return fragment
    digest = hashlib.blake2b(bases, digest_size=_DIGEST_BYTES).hexdigest()
    return replace(fragment, name=f"{fragment.name}_{digest}")


def _bases(record: Record, tile: _Tile) -> bytes:
    bases = record.sequence[tile.start : tile.end]
    return bases.translate(_COMPLEMENT)[::-1] if tile.backward else bases


def _by_file(sources: Sequence[Source]) -> dict[Path, dict[str | None, Source]]:
    files: dict[Path, dict[str | None, Source]] = defaultdict(dict)
    for source in sources:
        files[source.path][source.record] = source
    return files


def _genomes(
    path: Path, by_record: Mapping[str | None, Source]
) -> Iterator[tuple[GroupKey, str, list[_Numbered]]]:
    """Yield group, genome and records: a genome is a file, or a record that is its own group."""
    whole_file = by_record.get(None)
    records = list(read_records(str(path)))
    names = {record.name for record in records}
    for name, source in by_record.items():
        if name is not None and name not in names:
            raise InputError(
                f"{source.where}: {path} has no record {shortened(name)}; correct the name"
            )
    genomes: dict[tuple[GroupKey, str], list[_Numbered]] = defaultdict(list)
    for number, record in enumerate(records):
        found = by_record.get(record.name) or whole_file
        if found is None:
            continue
        if found.group is None:
            group, genome = printable(record.name), record.name
        else:
            group, genome = found.group, ""
        genomes[(found.viral, found.kingdom, group), genome].append((number, record))
    for (key, genome), members in genomes.items():
        yield key, genome, members


def _tiles(
    records: Sequence[_Numbered],
    length: str,
    most: int,
    dice: np.random.Generator,
    excluded: Excluded,
) -> list[_Tile]:
    places = _places(records, length, dice)
    chosen: list[_Tile] = []
    for place in dice.permutation(len(places)).tolist():
        if len(chosen) == most:
            break
        number, record, start, end = places[place]
        bases = record.sequence[start:end]
        regions = excluded.get(record.name, ())
        if any(start < stop and first < end for first, stop in regions):
            continue
        if length == WHOLE or sum(map(bases.count, b"ACGT")) >= LEAST_BASES * len(bases):
            backward = length != WHOLE and dice.random() < 0.5
            chosen.append(_Tile(number, record.name, start, end, backward))
    return chosen


def _places(
    records: Sequence[_Numbered], length: str, dice: np.random.Generator
) -> list[tuple[int, Record, int, int]]:
    if length == WHOLE:
        return [(number, record, 0, len(record.sequence)) for number, record in records]
    size = int(length)
    places = []
    for number, record in records:
        n_tiles, rest = divmod(len(record.sequence), size)
        if not n_tiles:
            continue
        offset = int(dice.integers(rest + 1))
        starts = range(offset, offset + n_tiles * size, size)
        places += [(number, record, start, start + size) for start in starts]
    return places


def _chosen(
    groups: Mapping[GroupKey, _Genomes], length: str, per_group: int, per_class: int, seed: int
) -> list[tuple[Fragment, _Tile]]:
    fragments: list[tuple[Fragment, _Tile]] = []
    for viral in (True, False):
        keys = sorted(key for key in groups if key[0] is viral)
        dice = _dice(seed, length, CLASS_NAMES[viral])
        kept: list[int] = sorted(dice.permutation(len(keys))[:per_class].tolist())
        most = min(per_group, -(-per_class // max(1, len(kept))))
        for key in (keys[i] for i in kept):
            for file, tile in _in_turn(groups[key], most, _dice(seed, length, *map(str, key))):
                cut_name = f"cut{length}_{len(fragments) + 1:06d}"
                name = tile.record if length == WHOLE else cut_name
                start, strand = tile.start + 1, "-" if tile.backward else "+"
                fragment = Fragment(name, length, *key, file, tile.record, start, tile.end, strand)
                fragments.append((fragment, tile))
    return fragments


def _in_turn(
    genomes: _Genomes, most: int, dice: np.random.Generator
) -> Iterator[tuple[str, _Tile]]:
    """Yield up to `most` tiles with their files; the genomes take turns in random order."""
    names = sorted(genomes)
    order = [names[i] for i in dice.permutation(len(names)).tolist()]
    turns = (
        (name[0], genomes[name][turn])
        for turn in range(most)
        for name in order
        if turn < len(genomes[name])
    )
    return islice(turns, most)


def _check_groups(keys: Iterable[GroupKey]) -> None:
    classes = defaultdict(set)
    for viral, _, group in keys:
        classes[group].add(viral)
    if both := sorted(group for group, found in classes.items() if len(found) > 1):
        raise InputError(
            f"{shortened(both[0])}: a record or group with this name is labelled viral and another "
            f"one non-viral ({len(both)} such names): rename one of them"
        )


def _check_names(fragments: Sequence[Fragment]) -> None:
    seen: dict[str, str] = {}
    for fragment in fragments:
        if not fragment.name:
            raise InputError(f"{fragment.file}: a record has no name; give each record a name")
        if fragment.name in seen:
            raise InputError(
                f"record {shortened(fragment.name)} is in {seen[fragment.name]} and in "
                f"{fragment.file}: whole records are compared by name; rename one of them"
            )
        if not fragment.name.isprintable():
            raise InputError(
                f"{fragment.file}: record {shortened(fragment.name)}: the name contains control "
                "characters; rename the record"
            )
        seen[fragment.name] = fragment.file


def _dice(seed: int, *words: str) -> np.random.Generator:
    """Return a random generator for `words`; other words give independent numbers."""
    digest = hashlib.sha256("\t".join((str(seed), *words)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))
