"""One encoder of a rank: what does not fit is split, and a row can be tried again alone."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray

from virnucpro.encoders.base import Encoder, EncoderSpec, IntArray, Precision
from virnucpro.encoders.batching import Filling, longest_first
from virnucpro.encoders.budget import MOST_TOKENS, TokenBudget, probe
from virnucpro.encoders.out_of_memory import Shortage, within_memory
from virnucpro.encoders.packed import Packed
from virnucpro.encoders.registry import load_encoder
from virnucpro.pipeline.feeding import one_ahead
from virnucpro.pipeline.poison import Place, Suspicion, pieces
from virnucpro.pipeline.twin import NoTwin, Twin, open_twin

__all__ = ["Again", "RankEncoder", "UnitTokens"]


class UnitTokens:
    """The rows of one unit as an encoder reads them.

    Attributes
    ----------
    unit
        The unit's number.
    ids
        Token ids of each row.
    lengths
        (n,) int64, tokens of each row.
    order
        (n,) int64: the rows, longest first. A `Place` counts along it.
    """

    def __init__(self, unit: int, ids: Sequence[IntArray]) -> None:
        self.unit = unit
        self.ids = ids
        self.lengths = np.array([len(row) for row in ids], np.int64)
        self.order = longest_first(self.lengths)


@dataclass(frozen=True, slots=True)
class Again:
    """What became of a row that was to be encoded again, alone.

    Attributes
    ----------
    vector
        (dim,) float32 on the CPU; None where there is none.
    precision
        What it was computed with.
    how
        What was tried in all: the end of a reason, should it have been in vain.
    too_large
        Why the row is to be set aside, where it did not fit even alone.
    """

    vector: torch.Tensor | None
    precision: Precision
    how: str = ""
    too_large: str = ""


class RankEncoder:
    """An encoder, its budget, and its twin nearer to fp32.

    Parameters
    ----------
    number
        Its place in the order of the run's encoders.
    spec, device, precision
        As `load_encoder` takes them.
    first_budget
        Tokens of a batch of which nothing has been learnt.
    learnt
        What earlier budgets learnt; see `TokenBudget`.

    Attributes
    ----------
    filling
        How full its batches were so far.
    """

    def __init__(
        self,
        number: int,
        spec: EncoderSpec,
        device: str,
        precision: Precision,
        first_budget: int,
        learnt: Mapping[str, int],
    ) -> None:
        self.number = number
        self.precision = precision
        self.budget = TokenBudget(spec.name, first_budget, learnt)
        self._spec = spec
        self._device = device
        self.encoder: Encoder = load_encoder(spec, device, precision)
        self.filling = Filling()
        self._most_tokens = 0

    def find_budget(self, sequence: bytes, first: int) -> None:
        """Find a first budget by trial, where none is known.

        Parameters
        ----------
        sequence
            The longest that there will be. Its length alone counts: the trial's tokens are made up,
            so that a row which kills the process does not do so before anybody is told of it.
        first
            Tokens of the first trial.
        """
        if self.budget.known:
            return
        (ids,) = self.encoder.tokenise([sequence])
        self.budget.begin_with(len(ids), probe(self.encoder, len(ids), first, MOST_TOKENS))

    def vectors(
        self,
        tokens: UnitTokens,
        suspicion: Suspicion,
        at: Callable[[Place], None],
        through: Callable[[int], None],
        *,
        ahead: bool = False,
    ) -> tuple[torch.Tensor, dict[int, str]]:
        """Encode a unit's rows.

        Parameters
        ----------
        at
            Told before each piece of work where it is.
        through
            Told after each how many rows it had.
        ahead
            Lay the next batch out and hand it to the device while the one before is computed
            there: a GPU does not wait for its host. Who dies then, may have died of the batch
            before the one that was told.

        Rows without tokens are left alone.

        Returns
        -------
        vectors : (n, dim) float32
            On the CPU; zeros where there is none.
        reasons : dict
            Row, counted within the unit -> why it has no vector.

        Raises
        ------
        MemoryError
            When the device does not hold what it has held before, or holds nothing at all.
        """
        way = _Way(self, tokens, at, through, ahead=ahead)
        sizes = tokens.lengths[tokens.order]
        sizes = sizes[sizes > 0]
        way.go(self._counted(sizes, pieces(sizes, self.budget, suspicion, self.number)))
        self._refuse_full_device(tokens, way.too_large)
        self._learn_from(suspicion, sizes)
        convicted = {
            int(tokens.order[position]): reason
            for position, reason in suspicion.convicted_in(self.number).items()
        }
        return way.vectors, convicted | way.too_large

    def _counted(self, sizes: IntArray, batches: Iterator[IntArray]) -> Iterator[IntArray]:
        for piece in batches:
            budget = self.budget(int(sizes[piece[0]]))
            self.filling = self.filling.after(int(sizes[piece].sum()), budget)
            yield piece

    def _refuse_full_device(self, tokens: UnitTokens, too_large: Mapping[int, str]) -> None:
        """Tell a row that is too large from a device that is full: others fit there, too, no more.

        Somebody else's memory, or a device that is bad, is no reason to set rows aside for good.
        """
        for row, reason in too_large.items():
            if tokens.lengths[row] <= self._most_tokens or not self._most_tokens:
                raise MemoryError(
                    f"{reason.partition(': ')[2]}; yet rows of up to {self._most_tokens:,} tokens "
                    "have fitted: somebody else uses the memory of this device, or it is bad."
                )

    def alone(self, tokens: UnitTokens, row: int, at: Callable[[Place], None]) -> Again:
        """Encode one row by itself, at fp32 or as near to it as there is room for."""
        at(self.place(tokens, np.flatnonzero(tokens.order == row)))
        twin = self._twin
        if isinstance(twin, NoTwin):
            return Again(None, self.precision, _how(self.precision, twin))
        encoded = within_memory(lambda: twin.encoder.encode([tokens.ids[row]]).cpu())
        if isinstance(encoded, Shortage):
            reason = self.too_large(tokens, row, encoded)
            return Again(
                None, twin.precision, too_large=f"{reason}, tried again alone at {twin.precision}"
            )
        return Again(encoded[0], twin.precision, _how(self.precision, twin))

    @cached_property
    def _twin(self) -> Twin | NoTwin:
        """Loaded when a row first needs it, and kept: others will, too."""
        if self.precision == "fp32":
            return Twin("fp32", self.encoder)
        return open_twin(self._spec, self._device, self.precision)

    def _learn_from(self, suspicion: Suspicion, sizes: IntArray) -> None:
        """Take batches in which processes died and which went well in halves for too large.

        The kernel kills a process that takes too much memory and raises no error that could be
        caught. Where it was something else, smaller batches cost little.
        """
        for place in suspicion.suspects_in(self.number):
            died = sizes[place.start : place.stop]
            if len(died) > 1:
                self.budget.lower(int(died[0]), int(died.sum()))

    def note_fitted(self, longest: int) -> None:
        """Keep in mind that a batch with a row of so many tokens fitted."""
        self._most_tokens = max(self._most_tokens, longest)

    def place(self, tokens: UnitTokens, positions: NDArray[np.int64]) -> Place:
        """Say where rows stand that this encoder takes."""
        return Place(tokens.unit, self.number, int(positions[0]), int(positions[-1]) + 1)

    def too_large(self, tokens: UnitTokens, row: int, shortage: Shortage) -> str:
        """Say why a row that does not fit has no vector."""
        wanted = f": {shortage.wanted} more were wanted" if shortage.wanted else ""
        return (
            f"out_of_memory: its {tokens.lengths[row]:,} tokens do not fit into the memory for "
            f"{self._spec.name}, even alone{wanted}"
        )


def _how(precision: Precision, twin: Twin | NoTwin) -> str:
    """Say in words what a row has been tried at."""
    if precision == "fp32":
        return "in a batch and alone"
    tried = f"at {precision} in a batch"
    if isinstance(twin, Twin):
        tried += f" and at {twin.precision} alone"
    if not twin.short:
        return tried
    return (
        f"{tried}; no nearer to fp32, for want of memory: {twin.short}. A run of its own "
        "at another --precision, or with more memory, may answer it"
    )


class _Way:
    """The way of one unit through one encoder.

    Attributes
    ----------
    vectors
        (n, dim) float32 on the CPU; zeros where there is none.
    too_large
        Row, counted within the unit -> why it has no vector.
    """

    def __init__(
        self,
        encoder: RankEncoder,
        tokens: UnitTokens,
        at: Callable[[Place], None],
        through: Callable[[int], None],
        *,
        ahead: bool,
    ) -> None:
        self.vectors = torch.zeros(len(tokens.ids), encoder.encoder.dim)
        self.too_large: dict[int, str] = {}
        self._encoder = encoder
        self._tokens = tokens
        self._at = at
        self._through = through
        self._ahead = ahead
        self._under_way: deque[tuple[IntArray, torch.Tensor]] = deque()

    def go(self, batches: Iterator[IntArray]) -> None:
        """Take all batches, each as positions along the unit's order."""
        if self._ahead:
            for piece, laid_out in one_ahead(batches, self._laid_out):
                self._launch(piece, laid_out.result)
        else:
            for piece in batches:
                self._launch(piece, partial(self._ids, piece))
        self._fetch(0)

    def _ids(self, piece: IntArray) -> list[IntArray]:
        return [self._tokens.ids[row] for row in self._tokens.order[piece]]

    def _laid_out(self, piece: IntArray) -> Packed:
        return self._encoder.encoder.collate(self._ids(piece))

    def _launch(self, piece: IntArray, batch: Callable[[], Packed | list[IntArray]]) -> None:
        """Start a batch; fetch what the one before it gave, or its own where nothing is ahead."""
        self._at(self._encoder.place(self._tokens, piece))
        launched = within_memory(lambda: self._encoder.encoder.encode(batch()))
        if isinstance(launched, Shortage):
            self._fetch(0)
            self._split(piece, launched)
        else:
            self._under_way.append((piece, launched))
            self._fetch(1 if self._ahead else 0)

    def _fetch(self, leave: int) -> None:
        """Wait for the oldest batches until no more than so many are under way."""
        while len(self._under_way) > leave:
            piece, launched = self._under_way.popleft()
            fetched = within_memory(launched.cpu)
            if isinstance(fetched, Shortage):
                self._split(piece, fetched)
                continue
            rows = self._tokens.order[piece]
            self.vectors[torch.from_numpy(rows)] = fetched
            self._encoder.note_fitted(int(self._tokens.lengths[rows].max()))
            self._through(len(rows))

    def _split(self, piece: IntArray, shortage: Shortage) -> None:
        """Try a batch that did not fit by halves; give up a row that does not fit alone."""
        rows = self._tokens.order[piece]
        if len(rows) == 1:
            row = int(rows[0])
            self.too_large[row] = self._encoder.too_large(self._tokens, row, shortage)
            self._through(1)
            return
        lengths = self._tokens.lengths[rows]
        self._encoder.budget.lower(int(lengths.max()), int(lengths.sum()))
        for half in np.array_split(piece, 2):
            self._launch(half, partial(self._ids, half))
