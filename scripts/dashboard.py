"""Draw the dispatcher's table in the middle of a run in which a GPU fails.

python scripts/dashboard.py OUT.svg
"""

import io
import os
import re
import signal
import sys
import time
from pathlib import Path

from rich.console import Console

from virnucpro.dispatch import BaseWorker
from virnucpro.dispatch.ui import Figures, RichDispatcher, draw

TASKS = 400
BROKEN_GPU = 2
SHOWN_AT = 150


class Imitation(BaseWorker):
    """Imitates a model that computes and a machine that fails."""

    def setup(self, gpu_id: int, seed: int, **kwargs: object) -> None:  # noqa: ARG002 - the contract
        """Fail on one GPU."""
        if gpu_id == BROKEN_GPU:
            raise OSError("CUDA error: uncorrectable ECC error encountered")

    def process(self, data: int) -> int:
        """Compute for some time; some tasks fail, one kills its worker."""
        if data == 90:
            os.kill(os.getpid(), signal.SIGKILL)
        if data % 60 == 59:
            raise ValueError(f"contig_{data}: no bases")
        time.sleep(60 if data == 70 else 0.02 + 0.04 * (data % 3))
        return data


def main() -> None:
    """Run the tasks and save one picture of the table."""
    picture = Console(file=io.StringIO(), record=True, width=100)
    dispatcher = RichDispatcher(Imitation, range(4), show_ui=False, max_attempts=1)
    began = time.perf_counter()

    def on_success(task_id: int, _result: object, _worker: int) -> None:
        if task_id == SHOWN_AT:
            stats = dispatcher.get_stats()
            picture.print(draw(stats, Figures.of(stats, TASKS, time.perf_counter() - began)))
            dispatcher.shutdown()

    dispatcher.run(range(TASKS), on_success, total_tasks=TASKS, task_timeout=1.0)
    drawing = picture.export_svg(title="RichDispatcher")
    # without the fonts that Rich loads from a network
    drawing = re.sub(r" *@font-face \{.*?\}\n\n?", "", drawing, flags=re.DOTALL)
    Path(sys.argv[1]).write_text(drawing, encoding="utf-8")


if __name__ == "__main__":
    main()
