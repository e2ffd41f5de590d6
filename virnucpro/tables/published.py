"""Two result files in the format of the published tool.

``prediction_results.txt`` has one line per scored item. Its label is the class with the higher
score. If both scores are equal, the label is `others`, as with ``torch.max`` in the published tool.
``prediction_results_highestscore.csv`` is tab-separated despite its name and has one line per
scored window. A window with two equal scores is viral. In both files, a score is written as the
shortest decimal number that is read back as the same float32.
"""

import re
from collections.abc import Iterator
from functools import cached_property

from virnucpro.arrays import Float32Array, IntArray
from virnucpro.classifier.consensus import Call, Evidence, Status
from virnucpro.sequences.items import WINDOW_ITEM
from virnucpro.store.schema import RowState
from virnucpro.tables.cells import named, shortest
from virnucpro.tables.columns import WindowRows
from virnucpro.tables.schema import TableBlock, Values, column
from virnucpro.tables.source import RunScores
from virnucpro.tables.write import blocks

_FORMULA = re.compile(r"""(?:^|(?<=[,;"'\s]))[=+\-@]""")
"""First character of a formula, where a spreadsheet program could start a cell."""


class PublishedResults(TableBlock):
    """Label and scores of every scored open frame, in input order.

    Whole windows are not included: the published tool does not score them.
    """

    filename = "prediction_results.txt"

    @classmethod
    def all_rows(cls, run: RunScores) -> Iterator[IntArray]:
        """Yield the numbers of the open frames with a score, in blocks."""
        for block in blocks(run.index.n_items):
            done = run.coverage.row_state[run.index.item_row[block]] == RowState.DONE
            yield block[done & (run.index.item_frame[block] != WINDOW_ITEM)]

    @cached_property
    def scores(self) -> Float32Array:
        """Scores of others and virus of each item, ``(n, 2)``."""
        return self.run.coverage.scores[self.run.index.item_row[self.rows], :2]

    @column("name")
    def Sequence_ID(self) -> Values:  # noqa: N802 - name of the published tool, as below
        """Name of the item."""
        return self.run.index.item_names(self.rows)

    @column("name")
    def Prediction(self) -> Values:  # noqa: N802
        """Class with the higher score."""
        return named(self.run.labels, self.scores[:, 1] > self.scores[:, 0])

    @column("number")
    def score1(self) -> Values:
        """Score of the others."""
        return shortest(self.scores[:, 0])

    @column("number")
    def score2(self) -> Values:
        """Score of the class virus."""
        return shortest(self.scores[:, 1])


class PublishedConsensus(WindowRows):
    """Call and highest scores of each scored window.

    Spreadsheet programs execute a cell that looks like a formula. Therefore the characters ``=``,
    ``+``, ``-`` and ``@`` of a window name are percent-encoded where a cell could start: at the
    start of the name, and after a comma, semicolon, quotation mark or space.
    """

    filename = "prediction_results_highestscore.csv"

    @classmethod
    def all_rows(cls, run: RunScores) -> Iterator[IntArray]:
        """Yield the numbers of the windows with a score from open frames, in blocks."""
        for block in blocks(run.index.n_windows):
            calls = run.windows.block(int(block[0]), int(block[-1]) + 1)
            yield block[(calls.status == Status.SCORED) & ((calls.evidence & Evidence.FRAMES) > 0)]

    @column("name")
    def Modified_ID(self) -> Values:  # noqa: N802
        """Name of the window."""
        return list(map(_without_formula, self.run.index.window_names(self.rows)))

    @column("name")
    def Is_Virus(self) -> Values:  # noqa: N802
        """Whether the class virus has the higher score."""
        return named(("False", "True"), self.calls.call == Call.VIRAL)

    @column("number")
    def max_score_0(self) -> Values:
        """Highest score of the others."""
        return shortest(self.calls.others)

    @column("number")
    def max_score_1(self) -> Values:
        """Highest score of the class virus."""
        return shortest(self.calls.virus)


def _without_formula(name: str) -> str:
    return _FORMULA.sub(lambda match: f"%{ord(match[0]):X}", name)
