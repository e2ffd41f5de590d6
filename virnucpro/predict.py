"""What ``virnucpro predict`` does, as a worker: ``virnucpro launch --worker virnucpro.predict``.

It loads the encoders once and does one file after the other, each in a run folder of its own, which
every other command understands.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from virnucpro.dispatch import BaseWorker, WorkerUnusable
from virnucpro.encoders.budget import BATCH_TOKENS
from virnucpro.errors import VirnucproError
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.in_process import predict_here
from virnucpro.pipeline.job import Job, SilentReporter
from virnucpro.pipeline.predict import predict_job
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.devices import Device, inherited_mask

if TYPE_CHECKING:
    from virnucpro.pipeline.models import Models

__all__ = ["Worker"]


class Worker(BaseWorker):
    """Tells viral from non-viral sequences, a file a task."""

    progress_timeout = Execution(Path()).deadlines.progress

    _job: Job
    _models: "Models"

    def setup(  # type: ignore[override] # needs keywords that the launcher names
        self,
        gpu_id: int,  # noqa: ARG002 - the device mask says which it is
        seed: int,  # noqa: ARG002 - nothing is drawn
        *,
        input_dir: Path,
        output_dir: Path,
        device: Literal["cuda", "cpu"] = "cpu",
        threads: int | None = None,
        job: Job | None = None,
        **options: Any,  # noqa: ANN401 - predict_job's own
    ) -> None:
        """Load the encoders and the classifier.

        Parameters
        ----------
        input_dir, output_dir
            The run of a file lies below `output_dir` where the file lies below `input_dir`.
        device
            The kind of device that this process sees one of.
        threads
            CPU threads of this worker; None for as many as the process may use.
        job
            What to do with each file, its inputs left open; made of `options` where it is None.
        **options
            As `virnucpro.pipeline.predict.predict_job` takes them.

        Raises
        ------
        BundleError, DeviceError, UsageError
            When there is no such bundle, it is damaged, or the device cannot be used.
        """
        from virnucpro.pipeline.models import Models  # noqa: PLC0415 - after the mask is set

        self._input_dir, self._output_dir, self._threads = input_dir, output_dir, threads
        mask = inherited_mask(os.environ)
        self._device = Device(device, mask[0] if device == "cuda" and mask else None)
        self._job = predict_job((), **options) if job is None else job
        self._models = Models(
            self._job.encoders,
            self._job.head,
            device,
            self._job.settled_precision,
            BATCH_TOKENS[device],
        )

    def process(self, data: str) -> dict[str, Any]:
        """Predict one file, or go on with it.

        Returns
        -------
        sequences, viral (their numbers), complete (whether every row has its numbers), skipped
        (whether all units had been computed before), and details: folder, units_computed, records
        and calls (numbers by status and by call), rows_missing, rows_quarantined, again (rows with
        numbers of another precision), warnings.

        Raises
        ------
        VirnucproError, OSError
            As `virnucpro.pipeline.predict.predict` does; what was committed stays.
        WorkerUnusable
            When the device has failed: this process cannot use it any more, another one may.
        """
        from torch import AcceleratorError  # noqa: PLC0415 - after the mask is set

        folder = self._output_dir / Path(data).relative_to(self._input_dir)
        was_there = RunDirectory(folder).run_json.exists()
        execution = Execution(folder, threads=self._threads, resume=True)
        warnings = _Warnings()
        job = replace(self._job, inputs=(data,))
        try:
            outcome, computed = predict_here(
                job, execution, self._device, warnings, self._models, self.progressed
            )
        except AcceleratorError as error:
            raise WorkerUnusable(f"{self._device}: {error}") from error
        except VirnucproError as error:
            if "--force" in str(error):
                error.add_note(f"a launch has no --force: remove {folder} instead, and repeat it")
            raise
        details = {
            "folder": str(folder),
            "units_computed": computed,
            "records": outcome.records,
            "calls": outcome.calls,
            "rows_missing": outcome.rows_missing,
            "rows_quarantined": outcome.rows_quarantined,
            "again": outcome.again,
            "warnings": warnings.texts,
        }
        return {
            "sequences": sum(outcome.records.values()),
            "viral": outcome.calls.get("viral", 0),
            "complete": outcome.complete,
            "skipped": was_there and not computed,
            "details": details,
        }


class _Warnings(SilentReporter):
    """Keeps what a person should know."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def warn(self, text: str) -> None:
        """Keep it."""
        self.texts.append(text)
