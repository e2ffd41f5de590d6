"""The default worker of ``virnucpro launch``, with the same results as ``virnucpro predict``.

The worker loads the encoders once, then processes files one by one, each in its own run folder.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from virnucpro.compute.predict import run_in_process
from virnucpro.compute.preflight import auto_precision, settled
from virnucpro.dispatch import WorkerUnusable
from virnucpro.encoders.base import Precision
from virnucpro.encoders.device import is_device_failure
from virnucpro.encoders.memory import PROCESS_BYTES, weight_bytes
from virnucpro.encoders.registry import shapes_of
from virnucpro.errors import InputError, RunError, UsageError
from virnucpro.folder_lock import is_held
from virnucpro.launch.worker_spec import FileWorker
from virnucpro.option import options_of
from virnucpro.run.creation import is_finished
from virnucpro.run.execution import Execution
from virnucpro.run.job import Job
from virnucpro.run.manifest import parse_manifest, read_manifest
from virnucpro.run.options import PredictOptions
from virnucpro.run.predict_job import predict_job
from virnucpro.run.reporter import Reporter
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.devices import Device, Kind, inherited_mask

if TYPE_CHECKING:
    from virnucpro.compute.rank_encoder import Models


class Worker(FileWorker):
    """Worker that identifies the viral sequences of a file; one task is one file."""

    progress_timeout = Execution(Path()).deadlines.progress

    _job: Job
    _models: "Models"

    @classmethod
    def prepare(cls, device: Kind, output_dir: Path, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Check the bundle and the options; return ``{"job": Job}``, the keywords for `setup`.

        `keywords` are the options of `predict_job`, or an earlier result of this method. The
        precision ``auto`` is replaced by the precision of the first run below `output_dir`. If
        there is no run, it is replaced by the default precision of this kind of device.

        Raises
        ------
        BundleError, UsageError
            If the bundle is missing or damaged, or an option is unknown or invalid.
        """
        options = dict(keywords)
        job = options.pop("job", None)
        known = set() if job else options_of(PredictOptions).keys()
        if unknown := options.keys() - known:
            raise UsageError(f"virnucpro.predict has no option {', '.join(sorted(unknown))}.")
        job = job or predict_job((), **options)
        if job.options.precision == "auto" and (precision := _precision_of_runs(output_dir)):
            job = job.with_options(precision=precision)
        return {"job": auto_precision(job, device)}

    @classmethod
    def uses_gpu(cls, keywords: Mapping[str, Any]) -> bool:
        """Return whether the bundle has weights for a GPU; `keywords` are from `prepare`."""
        return bool(shapes_of(*keywords["job"].encoders))

    @classmethod
    def finished(
        cls, data: str, input_dir: Path, output_dir: Path, keywords: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return the result of a file whose run a resume would leave as it is, else None.

        A run that cannot be read or resumed is left to `process`, which raises the error.
        """
        run = RunDirectory(output_dir / Path(data).relative_to(input_dir))
        with suppress(RunError, OSError):
            if run.run_json.is_file() and not is_held(run.lock):
                manifest = parse_manifest(run)
                job = replace(keywords["job"], inputs=(data,))
                if is_finished(run, manifest, settled(job, Execution(run.root), manifest)):
                    return _result(run, manifest.summary, 0)
        return None

    @classmethod
    def memory_bytes(cls, keywords: Mapping[str, Any]) -> int:
        """Return the memory in bytes that one CPU worker needs; `keywords` are from `prepare`."""
        job: Job = keywords["job"]
        weights = weight_bytes(shapes_of(*job.encoders), job.settled_precision, "cpu")
        return PROCESS_BYTES + weights

    def setup(
        self,
        gpu_id: int,  # noqa: ARG002 - the device mask selects the GPU
        seed: int,  # noqa: ARG002 - there is nothing random
        *,
        input_dir: Path,
        output_dir: Path,
        device: Kind = "cpu",
        threads: int | None = None,
        lock: bool = True,
        **keywords: Any,  # noqa: ANN401 - `prepare`'s own
    ) -> None:
        """Load the encoders and the classifier.

        Parameters
        ----------
        input_dir, output_dir
            Folders: the run folder of the file ``input_dir/NAME`` is ``output_dir/NAME``.
        device
            Kind of the device that is visible to this process.
        threads
            Number of CPU threads of this worker; None for all CPUs of the process.
        lock
            Whether to lock the run folder of each file.
        **keywords
            The keywords of `prepare`, or the dict that `prepare` returned.

        Raises
        ------
        BundleError, DeviceError, UsageError
            If the bundle is missing or damaged, the device cannot be used, or an option is invalid.
        """
        from virnucpro.compute.rank_encoder import Models  # noqa: PLC0415 - after the mask is set

        self._input_dir, self._output_dir = input_dir, output_dir
        self._threads, self._lock = threads, lock
        mask = inherited_mask(os.environ)
        self._device = Device(device, mask[0] if device == "cuda" and mask else None)
        self._job = self.prepare(device, output_dir, keywords)["job"]
        self._models = Models.of(self._job, device)

    def process(self, data: str) -> dict[str, Any]:
        """Predict the sequences of the file `data`, or resume the run of this file.

        Returns
        -------
        A dict of: sequences and viral (numbers of sequences), also by length; rule (of the calls);
        prevalence (assumed; None without a calibrated bundle or a scored sequence); proviruses
        (number of candidates); complete (whether every row has a result), skipped (whether an
        earlier launch computed all results), and details. The details are: folder, units_computed,
        records (number by status), calls (number by call), expected_false (viral calls),
        rows_missing, rows_quarantined, recomputed (rows recomputed at fp32), warnings.

        Raises
        ------
        VirnucproError, OSError
            The same errors as in `virnucpro.compute.predict.predict`; committed units are kept.
        WorkerUnusable
            If the device failed. A new process may be able to use the device again.
        """
        if not Path(data).is_file():  # a named pipe that took its place would block the worker
            raise InputError(f"{data} is no regular file any more: restore it, or rerun the launch")
        folder = self._output_dir / Path(data).relative_to(self._input_dir)
        existed = RunDirectory(folder).run_json.exists()
        execution = Execution(
            folder, threads=self._threads, resume=True, report=False, lock=self._lock
        )
        warnings = _Warnings()
        job = replace(self._job, inputs=(data,))
        try:
            outcome, computed = run_in_process(
                job, execution, warnings, self._device, self._models, self.progressed
            )
        except Exception as error:
            if is_device_failure(error):
                raise WorkerUnusable(f"{self._device}: {error}") from error
            raise
        summary = replace(outcome, warnings=tuple(warnings.texts)).summary
        result = _result(RunDirectory(folder), summary, computed)
        return result | {"skipped": existed and not computed}


def _result(run: RunDirectory, summary: Mapping[str, Any], computed: int) -> dict[str, Any]:
    """Return the result of a file from the `summary` of its `Outcome`."""
    details = {"folder": str(run.root), "units_computed": computed, **summary["details"]}
    return {**summary, "details": details}


class _Warnings(Reporter):
    """Reporter that stores the warnings of a run in `texts`."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def warn(self, text: str) -> None:
        """Store a warning, unless the same text is stored already."""
        if text not in self.texts:
            self.texts.append(text)


def _precision_of_runs(folder: Path) -> Precision | None:
    """Return the precision of the first run below a folder that can be read; None without a run."""
    for path in folder.rglob("run.json"):
        with suppress(RunError, OSError):
            precision: Precision = read_manifest(RunDirectory(path.parent.parent)).parameters[
                "precision"
            ]
            return precision
    return None
