"""Decision which rank of a machine computes which unit next. No I/O."""

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence


class UnitQueue:
    """The units of one launch: each is open, held by a rank that computes it, or committed.

    A rank takes its own units first, in order. Then it takes units of other ranks from their ends.
    Units of a rank that died are its own from then on; those in `suspects` are its last ones. Other
    ranks get these only if the rank failed permanently or is silent.

    Parameters
    ----------
    shares
        Own units of each rank, in the order of computation.

    Attributes
    ----------
    suspects
        Units in which ranks died.
    dropped
        Units that ranks held when they died: computed, or tokenised in advance.
    """

    def __init__(self, shares: Mapping[int, Sequence[int]]) -> None:
        self._open = {rank: deque(units) for rank, units in shares.items()}
        self._held: dict[int, set[int]] = {rank: set() for rank in shares}
        self._place = {unit: at for units in shares.values() for at, unit in enumerate(units)}
        self._owner = {unit: rank for rank, units in shares.items() for unit in units}
        self._uncommitted = set(self._owner)
        self._failed: set[int] = set()
        self.suspects: Collection[int] = ()
        self.dropped: set[int] = set()

    @property
    def is_over(self) -> bool:
        """Return whether all units are committed."""
        return not self._uncommitted

    def left(self, rank: int) -> list[int]:
        """Return the uncommitted units that a rank holds or has as its own, in order."""
        units = self._uncommitted.intersection([*self._open[rank], *self._held[rank]])
        return sorted(units, key=lambda unit: (unit in self.suspects, self._place[unit]))

    def holds(self, rank: int) -> bool:
        """Return whether a rank has taken a unit that it has not committed."""
        return bool(self._held[rank])

    def owner(self, unit: int) -> int:
        """Return the rank that had a unit as its own at the start."""
        return self._owner[unit]

    def take(self, rank: int, silent: Collection[int] = ()) -> int | None:
        """Return the next unit of a rank, which then holds it; None if there is none now.

        A rank takes one unit in advance, unless fewer units are open than there are ranks.

        Parameters
        ----------
        silent
            Ranks without a sign of life for too long. Other ranks take all of their open units, and
            compute those that they hold a second time.
        """
        if self._held[rank] and sum(map(len, self._open.values())) < len(self._open):
            return None
        unit = self._open[rank].popleft() if self._open[rank] else None
        if unit is None:
            unit = next(self._of_others(silent), None)
        if unit is not None:
            self._held[rank].add(unit)
        return unit

    def commit(self, rank: int, unit: int) -> None:
        """Record that a rank has committed a unit."""
        self._uncommitted.discard(unit)
        self._held[rank].discard(unit)

    def put_back(self, rank: int, *, failed: bool) -> None:
        """Open the units that a dead rank held; `failed` if the rank failed permanently."""
        others = (units for other, units in self._held.items() if other != rank)
        copied = set().union(*others)
        units = [unit for unit in self.left(rank) if unit not in copied]
        self.dropped |= self._held[rank]
        self._open[rank], self._held[rank] = deque(units), set()
        if failed:
            self._failed.add(rank)

    def _of_others(self, silent: Collection[int]) -> Iterator[int]:
        for rank, units in sorted(self._open.items(), key=lambda item: -len(item[1])):
            if units and (rank in self._failed or rank in silent):
                yield units.popleft()
            for at in reversed(range(len(units))):
                unit = units[at]
                if unit not in self.suspects:
                    del units[at]
                    yield unit
        holders = Counter(unit for units in self._held.values() for unit in units)
        for rank in silent:
            yield from sorted(
                unit for unit in self._held[rank] & self._uncommitted if holders[unit] == 1
            )
