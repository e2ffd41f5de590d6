"""A launch from its folder of files to its table."""

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virnucpro.dispatch import BaseWorker
from virnucpro.dispatch.dispatcher import SETUP_S
from virnucpro.dispatch.worker_file import file_of
from virnucpro.errors import DeviceError, InputError, UsageError, VirnucproError, WorkerError
from virnucpro.launch.allocator import ResourceAllocator
from virnucpro.launch.balancer import LoadBalancer
from virnucpro.launch.detector import GPUDetector
from virnucpro.launch.ledger import LaunchReport, Ledger
from virnucpro.launch.results import FileResult, FileStatus, WorkerTrouble
from virnucpro.launch.spawner import ProcessSpawner
from virnucpro.launch.summary import JSON_NAME, LOCK_NAME, LOGS_NAME, TSV_NAME
from virnucpro.launch.waiting import Patience, waiting_for
from virnucpro.launch.worker_spec import accepted, load_worker
from virnucpro.runtime.devices import Device, parse_devices, visible_gpus
from virnucpro.runtime.folder_lock import folder_lock
from virnucpro.runtime.threads import thread_variables

__all__ = ["LaunchOptions", "LaunchReport", "LauncherOrchestrator", "run_multi_gpu"]


_OWN_NAMES = {(TSV_NAME,), (JSON_NAME,), (LOGS_NAME,), (LOCK_NAME,)}


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """How to go about a launch.

    Attributes
    ----------
    threads
        CPU threads for all workers together; None for as many as the process may use.
    max_attempts
        How often a file may be begun whose workers die.
    file_timeout
        Seconds that a file may take, or None.
    start_timeout
        Seconds that a worker may take to set up, or None.
    progress_timeout
        Seconds that a worker may go on with a file without progress, before it is taken to hang and
        the file is begun again; None for what the worker's class says.
    quiet
        Print nothing but warnings.
    """

    threads: int | None = None
    max_attempts: int = 3
    file_timeout: float | None = None
    start_timeout: float | None = SETUP_S
    progress_timeout: float | None = None
    quiet: bool = False


class LauncherOrchestrator:
    """Has the files of a folder done, each by one of the workers that stay on their devices.

    A task is a file's path, as a string. A worker's ``setup`` is given, as far as it takes them,
    `input_dir`, `output_dir` (both `Path`), `device` (``cuda`` or ``cpu``: it sees its own alone)
    and `threads`. The scalars of the dict that it returns stand in the table; ``complete=False``
    says that the file was done in part, ``skipped=True`` that it had been done before.

    Attributes
    ----------
    gpu_detector, resource_allocator
        Say what there is.
    process_spawner, load_balancer
        Of the last launch, None before one.
    """

    def __init__(self) -> None:
        self.gpu_detector = GPUDetector()
        self.resource_allocator = ResourceAllocator()
        self.process_spawner: ProcessSpawner | None = None
        self.load_balancer: LoadBalancer | None = None

    def run(
        self,
        input_dir: Path | str,
        output_dir: Path | str,
        gpus: str | Sequence[int | Device] = "auto",
        pattern: str = "*",
        worker: str | type[BaseWorker] = "virnucpro.predict",
        *,
        options: LaunchOptions | None = None,
        keywords: Mapping[str, Any] | None = None,
        **setup_kwargs: Any,  # noqa: ANN401 - the worker's own
    ) -> int:
        """Do as `launch` does; print errors to standard error.

        Returns
        -------
        The exit code: 0 all done, 1 nothing could be done, 2 some files failed, 130 interrupted.
        """
        try:
            report = self.launch(
                input_dir,
                output_dir,
                gpus,
                pattern,
                worker,
                options=options,
                keywords=setup_kwargs | dict(keywords or {}),
            )
        except (VirnucproError, OSError) as error:
            sys.stderr.write(f"[virnucpro] error: {error}\n")
            return 1
        except KeyboardInterrupt:
            return 130
        return report.exit_code

    def launch(
        self,
        input_dir: Path | str,
        output_dir: Path | str,
        gpus: str | Sequence[int | Device] = "auto",
        pattern: str = "*",
        worker: str | type[BaseWorker] = "virnucpro.predict",
        *,
        options: LaunchOptions | None = None,
        keywords: Mapping[str, Any] | None = None,
        **setup_kwargs: Any,  # noqa: ANN401 - the worker's own
    ) -> LaunchReport:
        """Do every file of a folder, and write ``launch.tsv`` and ``launch.json``.

        Parameters
        ----------
        gpus
            ``auto``, ``0,1``, ``cpu:2``, or a list of numbers or of devices.
        pattern
            Which files below `input_dir`; those below `output_dir` do not count.
        worker
            A class, or what `load_worker` takes.
        **setup_kwargs
            For the worker's ``setup``.
        keywords
            More of them, whatever they are called.

        Raises
        ------
        UsageError, InputError, DeviceError
            When there is nothing to do, or nobody to do it.
        RunLockedError
            When another launch is at work in the output folder.
        WorkerError
            When no worker could be set up.
        OSError
            When the output folder cannot be written to. Of a disk that is full later, standard
            error tells.
        """
        options = options or LaunchOptions()
        # Absolute: a worker may change its folder.
        source, target = Path(input_dir).absolute(), Path(output_dir).absolute()
        plan = self._plan(source, target, pattern, _worker(worker))
        gpu_ids, devices = self._devices(gpus, len(plan.files), options)
        target.mkdir(parents=True, exist_ok=True)
        threads = max(1, _threads(options) // len(devices))
        balancer = self.load_balancer = LoadBalancer(gpu_ids)
        self.process_spawner = _spawner(target, threads, options)
        ledger = plan.ledger(devices, balancer)
        offered = plan.offered(devices[0], threads) | setup_kwargs | dict(keywords or {})
        with folder_lock(target / LOCK_NAME, "Wait for it, or choose another folder."):
            balancer.results.extend(plan.unusable)
            ledger.begin()
            try:
                self._work(plan, (gpu_ids, devices), options, offered, ledger)
            finally:
                self.process_spawner.terminate_all()
                report = ledger.end()
        _refuse_total_failure(balancer, report)
        if not options.quiet:
            balancer.print_summary(plan.n_files)
        return report

    def validate_setup(self, input_dir: Path | str, gpus: str | Sequence[int]) -> tuple[bool, str]:
        """Say whether a launch could begin, and why not."""
        ok, error = self.resource_allocator.validate_input_dir(input_dir)
        if not ok:
            return False, error
        try:
            self._devices(gpus, 1, LaunchOptions())
        except VirnucproError as raised:
            return False, str(raised)
        return True, ""

    def get_workload_info(self, input_dir: Path | str, pattern: str = "*") -> dict[str, Any]:
        """Say how much there is to do; see `ResourceAllocator.estimate_workload`."""
        allocator = self.resource_allocator
        return allocator.estimate_workload(allocator.discover_files(input_dir, pattern))

    def get_gpu_info(self) -> dict[str, Any]:
        """Say which GPUs there are: count, ids, cuda_available, details (of each)."""
        gpu_ids = self.gpu_detector.get_available_gpus()
        return {
            "count": len(gpu_ids),
            "ids": gpu_ids,
            "cuda_available": bool(gpu_ids),
            "details": [self.gpu_detector.get_gpu_info(gpu_id) for gpu_id in gpu_ids],
        }

    def _plan(self, source: Path, target: Path, pattern: str, worker: type[BaseWorker]) -> "_Plan":
        """Find the files; what a launch has written is no input of another one."""
        ok, error = self.resource_allocator.validate_input_dir(source)
        if not ok:
            raise UsageError(error)
        written = target.resolve()
        if source.resolve().is_relative_to(written):
            raise UsageError(
                f"{target}: the folder of the results is the one of the files, or holds it. Choose "
                "another one."
            )
        found = self.resource_allocator.look_through(source, pattern)
        files = {file for file in found.files if not file.resolve().is_relative_to(written)}
        unusable = {
            path: why for path, why in found.unusable.items() if not path.is_relative_to(written)
        }
        if not files:
            reasons = "; ".join(f"{path}: {why}" for path, why in sorted(unusable.items()))
            raise InputError(
                f"{source}: no file there is named {pattern!r}. {reasons} Give another folder, or "
                "another pattern ('**/' stands for folders in between)."
            )
        for file in files | unusable.keys():
            if file.relative_to(source).parts[:1] in _OWN_NAMES:
                raise UsageError(
                    f"{file}: what becomes of it would stand where a launch writes its own "
                    f"{file.relative_to(source).parts[0]}. Rename it, or narrow the pattern."
                )
        return _Plan(source, target, pattern, worker, sorted(files), unusable)

    def _devices(
        self, gpus: str | Sequence[int | Device], n_files: int, options: LaunchOptions
    ) -> tuple[list[int], list[Device]]:
        """Give the workers numbers and devices: no more of them than files."""
        if isinstance(gpus, str):
            devices = parse_devices(gpus, os.environ, option="--gpus")
            if gpus.strip() == "auto" and devices[0].kind == "cpu":
                devices *= _threads(options)  # one with one thread never waits for another's
        else:
            devices = self._listed(gpus)
        return _numbers(devices)[:n_files], devices[:n_files]

    def _listed(self, gpus: object) -> list[Device]:
        """Take a list of numbers, or of devices of one kind."""
        listed = list(gpus) if isinstance(gpus, Sequence) else None
        if listed and all(isinstance(gpu, Device) for gpu in listed):
            devices = [gpu for gpu in listed if isinstance(gpu, Device)]
            if len({device.kind for device in devices}) == 1:
                return devices
        elif listed is not None and all(type(gpu) is int for gpu in listed):
            numbers = [gpu for gpu in listed if isinstance(gpu, int)]
            ok, error = self.gpu_detector.validate_gpus(numbers)
            if not ok:
                raise DeviceError(error)
            return parse_devices(",".join(map(str, numbers)), os.environ)
        raise UsageError(
            f"{gpus!r} are no GPUs for a launch: give auto, 0,1, cpu:2, a list of numbers, or a "
            "list of devices of one kind."
        )

    def _work(
        self,
        plan: "_Plan",
        places: tuple[Sequence[int], Sequence[Device]],
        options: LaunchOptions,
        keywords: Mapping[str, Any],
        ledger: Ledger,
    ) -> None:
        assert self.process_spawner is not None
        assert self.load_balancer is not None
        gpu_ids, devices = places
        results = self.resource_allocator.create_result_queue()
        self.process_spawner.spawn_workers(
            gpu_ids,
            self.resource_allocator.create_task_queue(plan.files, len(gpu_ids)),
            results,
            plan.worker,
            devices=devices,
            total_files=len(plan.files),
            keywords=keywords,
        )
        teller = _Teller(self.load_balancer, self.process_spawner, plan.n_files, options)

        def came(item: FileResult | WorkerTrouble) -> None:
            teller.tell(item)
            ledger.update()

        self.load_balancer.monitor_progress(results, plan.n_files, came, teller.silence)
        self.process_spawner.wait_for_completion()


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done by whom."""

    source: Path
    target: Path
    pattern: str
    worker: type[BaseWorker]
    files: Sequence[Path]
    refused: Mapping[Path, str]

    @property
    def n_files(self) -> int:
        """How many rows there will be."""
        return len(self.files) + len(self.refused)

    @property
    def unusable(self) -> list[FileResult]:
        """Answer for what nobody need try."""
        return [
            FileResult(str(path), FileStatus.FAILED, error=why)
            for path, why in self.refused.items()
        ]

    def ledger(self, devices: Sequence[Device], balancer: LoadBalancer) -> Ledger:
        """Make what writes the table."""
        file = file_of(self.worker)
        facts = {
            "input_dir": str(self.source),
            "pattern": self.pattern,
            "worker": f"{file or self.worker.__module__}:{self.worker.__qualname__}",
            "devices": [str(device) for device in devices],
        }
        files = sorted((*self.files, *self.refused))
        return Ledger(self.source, self.target, files, facts, balancer)

    def offered(self, device: Device, threads: int) -> dict[str, Any]:
        """Give the keywords that the worker's setup takes of those that there are."""
        keywords = {
            "input_dir": self.source,
            "output_dir": self.target,
            "device": device.kind,
            "threads": threads,
        }
        return accepted(self.worker, keywords)


def _numbers(devices: Sequence[Device]) -> list[int]:
    """Give workers the numbers of their GPUs, or count from 0 on."""
    visible = list(visible_gpus(os.environ)) if devices[0].kind == "cuda" else []
    masks = [device.mask for device in devices]
    if all(mask in visible for mask in masks):
        return [visible.index(mask) for mask in masks if mask is not None]
    return list(range(len(devices)))


def _worker(worker: object) -> type[BaseWorker]:
    if isinstance(worker, str):
        return load_worker(worker)
    if isinstance(worker, type) and issubclass(worker, BaseWorker):
        return worker
    raise UsageError(f"{worker!r} is no worker: give a virnucpro.dispatch.BaseWorker.")


def _threads(options: LaunchOptions) -> int:
    return options.threads or len(os.sched_getaffinity(0))


def _shows_table(options: LaunchOptions) -> bool:
    drawable = importlib.util.find_spec("rich") is not None
    return drawable and not options.quiet and sys.stderr.isatty()


def _spawner(target: Path, threads: int, options: LaunchOptions) -> ProcessSpawner:
    return ProcessSpawner(
        max_attempts=options.max_attempts,
        file_timeout=options.file_timeout,
        setup_timeout=options.start_timeout,
        progress_timeout=options.progress_timeout,
        environment=thread_variables(threads, os.environ),
        log_folder=target / LOGS_NAME,
        show_ui=_shows_table(options),
    )


class _Teller:
    """Prints how it goes: a line each, unless there is a table; when quiet, troubles alone."""

    def __init__(
        self,
        balancer: LoadBalancer,
        spawner: ProcessSpawner,
        n_files: int,
        options: LaunchOptions,
    ) -> None:
        self._balancer = balancer
        self._spawner = spawner
        self._n_files = n_files
        self._quiet = options.quiet
        self._shown = _shows_table(options)
        self._patience = Patience()

    def tell(self, item: FileResult | WorkerTrouble) -> None:
        """Tell of a file or a worker."""
        fine = isinstance(item, FileResult) and item.complete
        if not self._shown and not (self._quiet and fine):
            self._balancer.print_progress(item)

    def silence(self, seconds: float) -> None:
        """Say what is being waited for."""
        files_left = len(self._balancer.results) < self._n_files
        if self._quiet or (self._shown and files_left):
            return
        if self._patience.is_over(seconds, files_left=files_left):
            status = self._spawner.get_process_status()
            self._balancer.say(waiting_for(status, files_left=files_left))


def _refuse_total_failure(balancer: LoadBalancer, report: LaunchReport) -> None:
    """Nobody could do anything: an error, not a table of failures."""
    if balancer.error is None:
        return
    if all(one.gpu_id is None for one in report.results):
        reasons = "; ".join(balancer.troubles) or str(balancer.error)
        raise WorkerError(
            f"no file was done: {reasons.rstrip('.')}. Mend that and repeat the command."
        ) from balancer.error


def run_multi_gpu(
    input_dir: Path | str,
    output_dir: Path | str,
    gpus: str | Sequence[int | Device] = "auto",
    pattern: str = "*",
    worker: str | type[BaseWorker] = "virnucpro.predict",
    *,
    options: LaunchOptions | None = None,
    keywords: Mapping[str, Any] | None = None,
    **setup_kwargs: Any,  # noqa: ANN401 - the worker's own
) -> int:
    """Do as `LauncherOrchestrator.run` does, in one call; return the exit code."""
    return LauncherOrchestrator().run(
        input_dir,
        output_dir,
        gpus,
        pattern,
        worker,
        options=options,
        keywords=setup_kwargs | dict(keywords or {}),
    )
