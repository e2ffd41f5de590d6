"""The published tool's two result files, in its format.

``prediction_results.txt`` has one line an item that was scored. Its label is the class with the
highest score, `others` on a tie, as ``torch.max`` takes the first of equals there.
``prediction_results_highestscore.csv``, tab-separated in spite of its name, has one line a window
that was scored; there a tie of the two highest scores is a virus. Scores are the shortest decimals
that give the same float32 back.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from virnucpro.classify.consensus import Call, Status, WindowCalls
from virnucpro.report.tsv import blocks, write_tsv
from virnucpro.sequences.index import SequenceIndex
from virnucpro.store.coverage import Coverage
from virnucpro.store.schema import RowState

__all__ = ["write_consensus", "write_results"]


def write_results(
    path: Path, index: SequenceIndex, coverage: Coverage, labels: Sequence[str]
) -> None:
    """Write label and scores of every scored item, in input order.

    Parameters
    ----------
    path : Path
        The file to write.
    index : SequenceIndex
        Names the items and tells the row of each.
    coverage : Coverage
        Holds the rows' scores.
    labels : sequence of str
        The bundle's names of the two classes, in the scores' order.

    Raises
    ------
    OSError
        When the file cannot be written; an older one is untouched.
    """
    write_tsv(
        path,
        ("Sequence_ID", "Prediction", "score1", "score2"),
        (_results(index, coverage, labels, block) for block in blocks(index.n_items)),
    )


def write_consensus(path: Path, index: SequenceIndex, windows: WindowCalls) -> None:
    """Write whether each scored window is a virus, and the highest score of either class.

    Spreadsheet programs open this file, and execute cells that look like a formula. The first
    character of a name is therefore percent-encoded if it is ``=``, ``+``, ``-`` or ``@``.

    Raises
    ------
    OSError
        When the file cannot be written; an older one is untouched.
    """
    scored = np.flatnonzero(windows.status == Status.SCORED)
    write_tsv(
        path,
        ("Modified_ID", "Is_Virus", "max_score_0", "max_score_1"),
        (
            (
                list(map(_without_formula, index.window_names(scored[block]))),
                [str(virus) for virus in (windows.call[scored[block]] == Call.VIRAL).tolist()],
                _shortest(windows.others[scored[block]]),
                _shortest(windows.virus[scored[block]]),
            )
            for block in blocks(len(scored))
        ),
    )


def _results(
    index: SequenceIndex, coverage: Coverage, labels: Sequence[str], block: slice
) -> tuple[list[str], list[str], list[str], list[str]]:
    rows = index.item_row[block]
    done = coverage.row_state[rows] == RowState.DONE
    scores = coverage.scores[rows[done]]
    items = np.flatnonzero(done) + block.start
    return (
        index.item_names(items),
        [labels[label] for label in scores.argmax(axis=1).tolist()],
        _shortest(scores[:, 0]),
        _shortest(scores[:, 1]),
    )


def _without_formula(name: str) -> str:
    return f"%{ord(name[0]):X}{name[1:]}" if name.startswith(("=", "+", "-", "@")) else name


def _shortest(values: npt.NDArray[np.float32]) -> list[str]:
    """Format float32 values as the shortest decimals that give them back."""
    texts: list[str] = values.astype(np.str_).tolist()
    return texts
