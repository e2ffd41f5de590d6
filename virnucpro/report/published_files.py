"""Two result files in the format of the published tool.

``prediction_results.txt`` has one line per scored item. Its label is the class with the higher
score. If both scores are equal, the label is `others`, as with ``torch.max`` in the published tool.
``prediction_results_highestscore.csv`` is tab-separated despite its name and has one line per
scored window. A window with two equal scores is viral. In both files, a score is written as the
shortest decimal number that is read back as the same float32.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from virnucpro.classifier.consensus import Call, Evidence, Status
from virnucpro.classifier.run_scores import WindowBlocks
from virnucpro.report.tables import window_columns
from virnucpro.report.tsv import blocks, write_tsv
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.items import WINDOW_ITEM
from virnucpro.sequences.windows import IntArray
from virnucpro.store.coverage import Coverage
from virnucpro.store.schema import RowState

__all__ = ["write_consensus", "write_results"]

_FORMULA = re.compile(r"""(?:^|(?<=[,;"'\s]))[=+\-@]""")
"""First character of a formula, where a spreadsheet program could start a cell."""


def write_results(
    path: Path, index: SequenceIndex, coverage: Coverage, labels: Sequence[str]
) -> None:
    """Write prediction_results.txt: label and scores of every scored open frame, in input order.

    Whole windows are not written: the published tool does not score them.

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
    others, virus = coverage.scores[:, :2].T
    write_tsv(
        path,
        _scored_frames(index, coverage),
        {
            "Sequence_ID": index.item_names,
            "Prediction": lambda items: [
                labels[label] for label in (virus[rows[items]] > others[rows[items]]).tolist()
            ],
            "score1": lambda items: _shortest(others[rows[items]]),
            "score2": lambda items: _shortest(virus[rows[items]]),
        },
    )


def _scored_frames(index: SequenceIndex, coverage: Coverage) -> Iterator[IntArray]:
    """Yield the numbers of the open frames with a score, in blocks."""
    for block in blocks(index.n_items):
        done = coverage.row_state[index.item_row[block]] == RowState.DONE
        yield block[done & (index.item_frame[block] != WINDOW_ITEM)]


def write_consensus(path: Path, index: SequenceIndex, windows: WindowBlocks) -> None:
    """Write prediction_results_highestscore.csv: call and highest scores of each scored window.

    Spreadsheet programs execute a cell that looks like a formula. Therefore the characters ``=``,
    ``+``, ``-`` and ``@`` of a window name are percent-encoded where a cell could start: at the
    start of the name, and after a comma, semicolon, quotation mark or space.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    column = window_columns(windows)
    write_tsv(
        path,
        _with_scored_frames(index, windows),
        {
            "Modified_ID": lambda rows: list(map(_without_formula, index.window_names(rows))),
            "Is_Virus": column("call", lambda call: lambda rows: _is_viral(call[rows])),
            "max_score_0": column("others", lambda score: lambda rows: _shortest(score[rows])),
            "max_score_1": column("virus", lambda score: lambda rows: _shortest(score[rows])),
        },
    )


def _with_scored_frames(index: SequenceIndex, windows: WindowBlocks) -> Iterator[IntArray]:
    """Yield the numbers of the windows with a score from open frames, in blocks."""
    for block in blocks(index.n_windows):
        calls = windows.block(int(block[0]), int(block[-1]) + 1)
        yield block[(calls.status == Status.SCORED) & ((calls.evidence & Evidence.FRAMES) > 0)]


def _is_viral(calls: npt.NDArray[np.uint8]) -> list[str]:
    return list(map(str, (calls == Call.VIRAL).tolist()))


def _without_formula(name: str) -> str:
    return _FORMULA.sub(lambda match: f"%{ord(match[0]):X}", name)


def _shortest(values: npt.NDArray[np.float32]) -> list[str]:
    """Format float32 values as the shortest decimal numbers with the same float32 value."""
    texts: list[str] = values.astype(np.str_).tolist()
    return texts
