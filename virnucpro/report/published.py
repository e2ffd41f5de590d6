"""The two result files of the published tool, in its format.

``prediction_results.txt`` has one line per scored item. Its label is the class with the higher
score, and `others` if both are equal: ``torch.max`` returns the first maximum there.
``prediction_results_highestscore.csv`` is tab-separated despite its name and has one line per
scored window. A window with two equal scores is a virus. A score is the shortest decimal number
that is read back as the same float32.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from virnucpro.classify.consensus import Call, Status, WindowCalls
from virnucpro.report.tsv import write_tsv
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
        File to write.
    index : SequenceIndex
        Names and rows of the items.
    coverage : Coverage
        Scores of the rows.
    labels : sequence of str
        Names of the two classes in the bundle, in the order of the scores.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    rows = index.item_row
    others, virus = coverage.scores.T
    write_tsv(
        path,
        np.flatnonzero((coverage.row_state == RowState.DONE)[rows]),
        {
            "Sequence_ID": index.item_names,
            "Prediction": lambda items: [
                labels[label] for label in (virus[rows[items]] > others[rows[items]]).tolist()
            ],
            "score1": lambda items: _shortest(others[rows[items]]),
            "score2": lambda items: _shortest(virus[rows[items]]),
        },
    )


def write_consensus(path: Path, index: SequenceIndex, windows: WindowCalls) -> None:
    """Write for each scored window whether it is viral, and the highest score of each class.

    Spreadsheet programs open this file, and execute cells that look like a formula. The first
    character of a name is therefore percent-encoded if it is ``=``, ``+``, ``-`` or ``@``.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    viral = windows.call == Call.VIRAL
    write_tsv(
        path,
        np.flatnonzero(windows.status == Status.SCORED),
        {
            "Modified_ID": lambda rows: list(map(_without_formula, index.window_names(rows))),
            "Is_Virus": lambda rows: list(map(str, viral[rows].tolist())),
            "max_score_0": lambda rows: _shortest(windows.others[rows]),
            "max_score_1": lambda rows: _shortest(windows.virus[rows]),
        },
    )


def _without_formula(name: str) -> str:
    return f"%{ord(name[0]):X}{name[1:]}" if name.startswith(("=", "+", "-", "@")) else name


def _shortest(values: npt.NDArray[np.float32]) -> list[str]:
    """Format float32 values as the shortest decimal numbers that are read back as equal."""
    texts: list[str] = values.astype(np.str_).tolist()
    return texts
