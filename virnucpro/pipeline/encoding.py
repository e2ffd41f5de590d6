"""One encoder of a rank: what does not fit is split, and a row can be tried again alone at fp32."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from virnucpro.encoders.base import Encoder, EncoderSpec, IntArray, Precision
from virnucpro.encoders.batching import longest_first
from virnucpro.encoders.budget import TokenBudget, probe
from virnucpro.encoders.memory import Shortage, within_memory
from virnucpro.encoders.registry import load_encoder
from virnucpro.pipeline.poison import Place, Suspicion, pieces

__all__ = ["MOST_TOKENS", "RankEncoder", "UnitTokens"]

MOST_TOKENS = 65_536
"""Budget beyond which a GPU gains nothing: it is at work to the full with fewer."""


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


class RankEncoder:
    """An encoder, its budget, and its twin at fp32.

    Parameters
    ----------
    number
        Its place in the order of the run's encoders.
    spec, device, precision
        As `load_encoder` takes them.
    first_budget
        Padded tokens of a batch of which nothing has been learnt.
    learnt
        What earlier budgets learnt; see `TokenBudget`.
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
        self._most_tokens = 0

    def find_budget(self, sequence: bytes, first: int) -> None:
        """Find a first budget by trial, where none is known.

        Parameters
        ----------
        sequence
            The longest that there will be. Its length alone counts: the trial's tokens are made up,
            so that a row which kills the process does not do so before anybody is told of it.
        first
            Padded tokens of the first trial.
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
    ) -> tuple[torch.Tensor, dict[int, str]]:
        """Encode a unit's rows.

        Parameters
        ----------
        at
            Told before each piece of work where it is.
        through
            Told after each how many rows it had.

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
        vectors = torch.zeros(len(tokens.ids), self.encoder.dim)
        reasons = {
            int(tokens.order[position]): reason
            for position, reason in suspicion.convicted_in(self.number).items()
        }

        def encode(piece: IntArray) -> None:
            at(self._place(tokens, piece))
            rows = tokens.order[piece]
            batch = [tokens.ids[row] for row in rows]
            encoded = within_memory(lambda: self.encoder.encode(batch).cpu())
            if not isinstance(encoded, Shortage):
                vectors[torch.from_numpy(rows)] = encoded
                self._most_tokens = max(self._most_tokens, int(tokens.lengths[rows].max()))
                through(len(rows))
            elif len(rows) == 1:
                too_large[int(rows[0])] = self._too_large(tokens, int(rows[0]), encoded)
                through(1)
            else:
                self.budget.lower(int(tokens.lengths[rows].max()), len(rows))
                for half in np.array_split(piece, 2):
                    encode(half)

        too_large: dict[int, str] = {}
        sizes = tokens.lengths[tokens.order]
        sizes = sizes[sizes > 0]
        for piece in pieces(sizes, self.budget, suspicion, self.number):
            encode(piece)
        self._refuse_full_device(tokens, too_large)
        self._learn_from(suspicion, sizes)
        return vectors, reasons | too_large

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

    def alone(
        self, tokens: UnitTokens, row: int, at: Callable[[Place], None]
    ) -> torch.Tensor | str:
        """Encode one row by itself at fp32.

        Returns
        -------
        (dim,) float32 on the CPU, or why there is none
        """
        at(self._place(tokens, np.flatnonzero(tokens.order == row)))
        encoded = within_memory(lambda: self._twin.encode([tokens.ids[row]]).cpu())
        if isinstance(encoded, Shortage):
            return self._too_large(tokens, row, encoded) + ", tried again alone at fp32"
        return encoded[0]

    @cached_property
    def _twin(self) -> Encoder:
        """The same at fp32. Loaded when a row first needs it, and kept: others will, too."""
        if self.precision == "fp32":
            return self.encoder
        return load_encoder(self._spec, self._device, "fp32")

    def _learn_from(self, suspicion: Suspicion, sizes: IntArray) -> None:
        """Take batches in which processes died and which went well in halves for too large.

        The kernel kills a process that takes too much memory and raises no error that could be
        caught. Where it was something else, smaller batches cost little.
        """
        for place in suspicion.suspects_in(self.number):
            died = sizes[place.start : place.stop]
            if len(died) > 1:
                self.budget.lower(int(died[0]), len(died))

    def _place(self, tokens: UnitTokens, positions: NDArray[np.int64]) -> Place:
        return Place(tokens.unit, self.number, int(positions[0]), int(positions[-1]) + 1)

    def _too_large(self, tokens: UnitTokens, row: int, shortage: Shortage) -> str:
        wanted = f": {shortage.wanted} more were wanted" if shortage.wanted else ""
        return (
            f"out_of_memory: its {tokens.lengths[row]:,} tokens do not fit into the memory for "
            f"{self._spec.name}, even alone{wanted}"
        )
