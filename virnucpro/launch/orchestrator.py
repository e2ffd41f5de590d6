"""A launch from its folder of files to its table."""

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virnucpro.dispatch import BaseWorker
from virnucpro.errors import DeviceError, InputError, UsageError, VirnucproError, WorkerError
from virnucpro.launch.allocator import ResourceAllocator
from virnucpro.launch.balancer import LoadBalancer
from virnucpro.launch.detector import GPUDetector
from virnucpro.launch.results import FileResult, FileStatus, WorkerTrouble
from virnucpro.launch.spawner import ProcessSpawner
from virnucpro.launch.summary import (
    JSON_NAME,
    LOCK_NAME,
    LOGS_NAME,
    TSV_NAME,
    table,
    write_summary,
)
from virnucpro.launch.worker_spec import accepted, load_worker
from virnucpro.runtime.devices import Device, parse_devices, visible_gpus
from virnucpro.runtime.folder_lock import folder_lock
from virnucpro.runtime.threads import thread_variables

__all__ = ["LaunchOptions", "LaunchReport", "LauncherOrchestrator", "run_multi_gpu"]


_OWN_NAMES = {TSV_NAME, JSON_NAME, LOGS_NAME, LOCK_NAME}


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
    quiet
        Print nothing but warnings.
    """

    threads: int | None = None
    max_attempts: int = 3
    file_timeout: float | None = None
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """What a launch came to.

    Attributes
    ----------
    results
        Of every file, by name.
    rows
        The table, its header first.
    exit_code
        0 all done, 1 nothing could be done, 2 some files failed, or were done in part.
    """

    results: Sequence[FileResult]
    rows: Sequence[Sequence[str]]
    exit_code: int


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
        **setup_kwargs: Any,  # noqa: ANN401 - the worker's own
    ) -> int:
        """Do as `launch` does; print errors to standard error.

        Returns
        -------
        The exit code: 0 all done, 1 nothing could be done, 2 some files failed, 130 interrupted.
        """
        try:
            report = self.launch(
                input_dir, output_dir, gpus, pattern, worker, options=options, **setup_kwargs
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

        Raises
        ------
        UsageError, InputError, DeviceError
            When there is nothing to do, or nobody to do it.
        RunLockedError
            When another launch is at work in the output folder.
        WorkerError
            When no worker could be set up.
        OSError
            When the output folder or the table cannot be written.
        """
        options = options or LaunchOptions()
        plan = _Plan(
            source=Path(input_dir),
            target=Path(output_dir),
            pattern=pattern,
            worker=load_worker(worker) if isinstance(worker, str) else worker,
            files=self._files(Path(input_dir), Path(output_dir), pattern),
        )
        gpu_ids, devices = self._devices(gpus, len(plan.files), options)
        plan.target.mkdir(parents=True, exist_ok=True)
        threads = max(1, _threads(options) // len(devices))
        balancer = self.load_balancer = LoadBalancer(gpu_ids)
        self.process_spawner = _spawner(plan.target, threads, options)
        with folder_lock(plan.target / LOCK_NAME, "Wait for it, or choose another folder."):
            try:
                keywords = plan.offered(devices[0], threads) | setup_kwargs
                self._work(plan, gpu_ids, devices, options, keywords)
            finally:
                self.process_spawner.terminate_all()
                report = _report(plan, devices, balancer)
        _refuse_total_failure(balancer, report)
        if not options.quiet:
            balancer.print_summary(len(plan.files))
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

    def _files(self, source: Path, target: Path, pattern: str) -> list[Path]:
        """Find the files; what a launch has written is no input of another one."""
        written = target.resolve()
        found = [
            file
            for file in self.resource_allocator.discover_files(source, pattern)
            if not file.resolve().is_relative_to(written)
        ]
        if not found:
            raise InputError(
                f"{source}: no file there is named {pattern!r}. Give another folder, or another "
                "pattern ('**/' stands for folders in between)."
            )
        for file in found:
            if file.relative_to(source).parts[0] in _OWN_NAMES:
                raise UsageError(
                    f"{file}: what becomes of it would stand where a launch writes its own "
                    f"{file.relative_to(source).parts[0]}. Rename it, or narrow the pattern."
                )
        return found

    def _devices(
        self, gpus: str | Sequence[int | Device], n_files: int, options: LaunchOptions
    ) -> tuple[list[int], list[Device]]:
        """Give the workers numbers and devices: no more of them than files."""
        if isinstance(gpus, str):
            devices = parse_devices(gpus, os.environ)
            if gpus.strip() == "auto" and devices[0].kind == "cpu":
                devices *= _threads(options)  # one with one thread never waits for another's
        elif gpus and all(isinstance(gpu, Device) for gpu in gpus):
            devices = [gpu for gpu in gpus if isinstance(gpu, Device)]
        else:
            gpu_ids = [gpu for gpu in gpus if isinstance(gpu, int)]
            ok, error = self.gpu_detector.validate_gpus(gpu_ids)
            if not ok:
                raise DeviceError(error)
            devices = parse_devices(",".join(map(str, gpu_ids)), os.environ)
        return _numbers(devices)[:n_files], devices[:n_files]

    def _work(
        self,
        plan: "_Plan",
        gpu_ids: Sequence[int],
        devices: Sequence[Device],
        options: LaunchOptions,
        keywords: dict[str, Any],
    ) -> None:
        assert self.process_spawner is not None
        assert self.load_balancer is not None
        results = self.resource_allocator.create_result_queue()
        self.process_spawner.spawn_workers(
            gpu_ids,
            self.resource_allocator.create_task_queue(plan.files, len(gpu_ids)),
            results,
            plan.worker,
            devices=devices,
            total_files=len(plan.files),
            **keywords,
        )
        told = _teller(self.load_balancer, options)
        self.load_balancer.monitor_progress(results, len(plan.files), told)
        self.process_spawner.wait_for_completion()


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is to be done by whom."""

    source: Path
    target: Path
    pattern: str
    worker: type[BaseWorker]
    files: Sequence[Path]

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


def _threads(options: LaunchOptions) -> int:
    return options.threads or len(os.sched_getaffinity(0))


def _shows_table(options: LaunchOptions) -> bool:
    drawable = importlib.util.find_spec("rich") is not None
    return drawable and not options.quiet and sys.stderr.isatty()


def _spawner(target: Path, threads: int, options: LaunchOptions) -> ProcessSpawner:
    return ProcessSpawner(
        max_attempts=options.max_attempts,
        file_timeout=options.file_timeout,
        environment=thread_variables(threads, os.environ),
        log_folder=target / LOGS_NAME,
        show_ui=_shows_table(options),
    )


def _teller(
    balancer: LoadBalancer, options: LaunchOptions
) -> Callable[[FileResult | WorkerTrouble], None] | None:
    """Say what prints how it goes: a line each, unless there is a table; when quiet, troubles."""
    if _shows_table(options):
        return None

    def tell(item: FileResult | WorkerTrouble) -> None:
        fine = isinstance(item, FileResult) and item.complete
        if not (options.quiet and fine):
            balancer.print_progress(item)

    return tell


def _report(plan: _Plan, devices: Sequence[Device], balancer: LoadBalancer) -> LaunchReport:
    """Put a row for every file together, those that nobody has done included, and write it."""
    known = {one.file: one for one in balancer.results}
    why = "the launch was over before"
    if balancer.error is not None:
        why += f": {str(balancer.error).partition(chr(10))[0]}"
    results = [
        known.get(str(file), FileResult(str(file), FileStatus.LEFT, error=why))
        for file in plan.files
    ]
    rows = table(results, plan.source)
    exit_code = balancer.get_exit_code()
    facts = {
        "input_dir": str(plan.source),
        "pattern": plan.pattern,
        "worker": f"{plan.worker.__module__}:{plan.worker.__qualname__}",
        "devices": [str(device) for device in devices],
        "exit_code": exit_code,
        **balancer.get_summary_stats(),
        "troubles": balancer.troubles,
    }
    write_summary(plan.target, rows, results, facts)
    return LaunchReport(results, rows, exit_code)


def _refuse_total_failure(balancer: LoadBalancer, report: LaunchReport) -> None:
    """Nobody could do anything: an error, not a table of failures."""
    if balancer.error is None:
        return
    if all(one.status is FileStatus.LEFT for one in report.results):
        reasons = "; ".join(balancer.troubles) or str(balancer.error)
        raise WorkerError(
            f"no file was done: {reasons}. Mend that and repeat the command."
        ) from balancer.error


def run_multi_gpu(
    input_dir: Path | str,
    output_dir: Path | str,
    gpus: str | Sequence[int | Device] = "auto",
    pattern: str = "*",
    worker: str | type[BaseWorker] = "virnucpro.predict",
    *,
    options: LaunchOptions | None = None,
    **setup_kwargs: Any,  # noqa: ANN401 - the worker's own
) -> int:
    """Do as `LauncherOrchestrator.run` does, in one call; return the exit code."""
    return LauncherOrchestrator().run(
        input_dir, output_dir, gpus, pattern, worker, options=options, **setup_kwargs
    )
