"""What several tests share: a rank's task, an open run, reporters."""

from contextlib import contextmanager

from virnucpro.bundles.bundle import open_bundle
from virnucpro.compute.rank_main import RankTask
from virnucpro.run.creation import claimed, created, resumed
from virnucpro.run.reporter import CommandReporter, Reporter
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.policy import Findings, TaskSpan
from virnucpro.runtime.status import Fault


def mini_task(folder, unit_rows, **changes):
    """Return the task of a rank with the bundle `mini-deep` in a run folder."""
    bundle = open_bundle("mini-deep")
    values = {
        "run": RunDirectory(folder),
        "fingerprint": "f" * 64,
        "encoders": bundle.encoders,
        "head": bundle.head,
        "precision": "fp32",
        "embeddings": "fp32",
        "unit_rows": unit_rows,
        "unit_positions": 1 << 20,
        "batch_tokens": 512,
        "torch_device": "cpu",
        "threads": 1,
    }
    return RankTask(**values | changes)


class CallingReporter(CommandReporter):
    """The reporter of the command line, with a function to call after each event.

    The function gets the text of a stage, or "ranks" at each check of the workers.
    """

    def __init__(self, function, *, quiet=True):
        super().__init__(None, quiet=quiet)
        self._function = function

    def stage(self, text):
        super().stage(text)
        self._function(text)

    def ranks(self, statuses):
        super().ranks(statuses)
        self._function("ranks")


class Watch:
    """Records all reports of a rank's encoders."""

    def __init__(self):
        self.places = []
        self.rows = []

    def report_next(self, place):
        self.places.append(place)

    def report_encoded(self, rows):
        self.rows.append(rows)

    @property
    def batches(self):
        return [place for place in self.places if place.stage >= 0]


def isolating(stage, *positions, unit=3, reason="killed by SIGSEGV"):
    """Return the findings by which the rows at some positions kill their workers."""
    fault = Fault(0, 2, "SIGSEGV", "", reason)
    spans = (TaskSpan(unit, stage, position, position + 1) for position in positions)
    return Findings(isolated=tuple((span, fault) for span in spans))


@contextmanager
def open_run(job, execution):
    """Create or resume a run, and hold its lock."""
    with claimed(job, execution) as manifest:
        if manifest is None:
            yield created(job, execution, Reporter())
        else:
            yield resumed(manifest, job, execution, Reporter())
