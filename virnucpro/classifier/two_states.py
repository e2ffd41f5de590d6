"""The most probable path of two states, for many records at once and without a loop over windows.

A window is viral or not, has evidence for viral, and each change of state has a cost. The path of
the largest sum (Viterbi 1967) needs one number per window, the lead of the best viral path over the
best non-viral path::

    lead[0] = start + evidence[0]
    lead[t] = clip(lead[t - 1], -enter, leave) + evidence[t]

A window with ``lead > leave`` is viral and one with ``lead < -enter`` is not, whatever follows. Any
other window has the state of the next one; the last window of a record is viral if ``lead > 0``.
Two steps of ``clip and add`` are again such a step, so the windows are computed by doubling.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Costs", "viral_windows"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of the model, in the unit of the evidence.

    Attributes
    ----------
    enter, leave
        Cost of a change from non-viral to viral, and from viral to non-viral; 0 or more.
    start
        Lead of viral before the first window of a record.
    """

    enter: int
    leave: int
    start: int


def viral_windows(evidence: IntArray, first: IntArray, costs: Costs) -> NDArray[np.bool_]:
    """Return which windows are viral on the best path of each record.

    Parameters
    ----------
    evidence
        ``(n_windows,)``, evidence for viral of each window; 0 for a window without a score.
        Integers, so that a result does not depend on the order of the additions.
    first
        ``(n_records + 1,)``, the first window of each record, then ``n_windows``.
    costs
        Costs of the changes.

    Returns
    -------
    ``(n_windows,)`` bool
    """
    filled = np.diff(first) > 0
    heads, tails = first[:-1][filled], first[1:][filled] - 1
    low, high = np.full(len(evidence), -costs.enter), np.full(len(evidence), costs.leave)
    low[heads] = high[heads] = costs.start
    total = evidence.astype(np.int64)
    # After each round, `clip(x, low, high) + total` of a window stands for `reach` steps. A window
    # with low == high is known; the heads of records are, so no step joins two records.
    reach, unknown = 1, np.flatnonzero(low < high)
    while len(unknown):
        before = unknown - reach
        shift = total[before]
        least, most = low[unknown] - shift, high[unknown] - shift
        low[unknown] = np.clip(low[before], least, most)
        high[unknown] = np.clip(high[before], least, most)
        total[unknown] += shift
        unknown = unknown[low[unknown] < high[unknown]]
        reach *= 2
    lead = low + total
    viral = lead > costs.leave
    decided = viral | (lead < -costs.enter)
    viral[tails], decided[tails] = lead[tails] > 0, True
    places = np.where(decided, np.arange(len(lead)), len(lead))
    result: NDArray[np.bool_] = viral[np.minimum.accumulate(places[::-1])[::-1]]
    return result
