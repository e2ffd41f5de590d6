"""A launch: processes all files of an input folder and writes a table of the results."""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, ParamSpec

from virnucpro.console import counted, say
from virnucpro.dispatch import BaseWorker
from virnucpro.dispatch.dispatcher import SETUP_S
from virnucpro.dispatch.worker import file_of
from virnucpro.durable import (
    make_folder,
    real_path,
    refuse_links,
    remove_unfinished,
    require_regular,
)
from virnucpro.errors import InputError, UsageError, VirnucproError, WorkerError
from virnucpro.folder_lock import folder_lock
from virnucpro.launch.allocator import Found, ResourceAllocator
from virnucpro.launch.balancer import LoadBalancer, ResultPrinter
from virnucpro.launch.detector import GPUDetector
from virnucpro.launch.results import FileResult, WorkerTrouble
from virnucpro.launch.spawner import ProcessSpawner
from virnucpro.launch.table import FileShare, LaunchReport, LaunchTable, join_tables
from virnucpro.launch.worker_spec import DEFAULT_WORKER, FileWorker, accepted_keywords, load_worker
from virnucpro.launch_dir import LOCK_NAME, LOGS_NAME, OWN_NAMES, TASKS_NAME, FileStatus
from virnucpro.machine import scheduler_limit, usable_cpus, usable_memory
from virnucpro.run_dir import is_run
from virnucpro.runtime.devices import (
    Device,
    parse_devices,
    thread_variables,
    unused_gpus,
    visible_gpus,
)

_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """Options of a launch.

    Attributes
    ----------
    threads
        Total number of CPU threads of all workers; None for all CPUs of the process.
    max_attempts
        Maximum number of attempts for a file if workers die while they process it.
    file_timeout
        Time limit of a file in seconds; None for no limit.
    start_timeout
        Time limit of a worker's setup in seconds; None for no limit.
    progress_timeout
        Maximum seconds without progress within a file. A worker that exceeds this limit is
        replaced, and the file is retried. None for the limit of the worker class.
    quiet
        Whether to print only warnings and failures.
    share
        Share of this process if several processes divide the files; None for all files.
    lock
        Whether to lock the output folder; without a lock, no other process may write there.
    """

    threads: int | None = None
    max_attempts: int = 3
    file_timeout: float | None = None
    start_timeout: float | None = SETUP_S
    progress_timeout: float | None = None
    quiet: bool = False
    share: FileShare | None = None
    lock: bool = True


def _exit_code_of(launch: Callable[_P, LaunchReport]) -> Callable[_P, int]:
    """Return a function with the parameters of `launch` that returns the exit code."""

    def run(*arguments: _P.args, **keywords: _P.kwargs) -> int:
        """Process every file of a folder like `LauncherOrchestrator.launch`; return the exit code.

        The parameters are those of `LauncherOrchestrator.launch`. Its errors, unknown options of
        the worker included, are printed to standard error.

        Returns
        -------
        int
            0: all files are done. 1: no file has a result, or the launch failed with an error. 2:
            some files failed, are partial or were not processed, or the result table could not be
            written. 130: interrupted by Ctrl-C.
        """
        try:
            return launch(*arguments, **keywords).exit_code
        except (VirnucproError, OSError) as error:
            say(f"error: {error}")
            return 1
        except KeyboardInterrupt:
            return 130

    vars(run)["__signature__"] = signature(launch).replace(return_annotation=int)
    return run


class LauncherOrchestrator:
    """Processes the files of a folder with persistent workers, one per device.

    A task is the path of a file, as a string. The worker's ``setup`` gets the following keyword
    arguments if it accepts them: `input_dir` and `output_dir` (`Path`), `device` (``cuda`` or
    ``cpu``), `threads`, and ``lock=False`` in a launch without locks. ``process`` returns a dict:
    its scalars become columns of the table, ``complete=False`` marks a partial result,
    ``skipped=True`` a file that an earlier launch has done.

    Attributes
    ----------
    gpu_detector, resource_allocator
        Objects that find the devices and the input files.
    process_spawner, load_balancer
        Objects that started the workers and collected the results of the last launch; None before
        the first launch.
    """

    def __init__(self) -> None:
        self.gpu_detector = GPUDetector()
        self.resource_allocator = ResourceAllocator()
        self.process_spawner: ProcessSpawner | None = None
        self.load_balancer: LoadBalancer | None = None

    def launch(
        self,
        input_dir: Path | str,
        output_dir: Path | str,
        gpus: str | Sequence[int | Device] = "auto",
        pattern: str = "*",
        worker: str | type[BaseWorker] = DEFAULT_WORKER,
        *,
        options: LaunchOptions | None = None,
        keywords: Mapping[str, Any] | None = None,
        **setup_kwargs: Any,  # noqa: ANN401 - the worker's own
    ) -> LaunchReport:
        """Process every file of a folder, and write ``launch.tsv`` and ``launch.json``.

        Parameters
        ----------
        gpus
            ``auto`` (all GPUs; without a GPU, as many CPU workers as CPUs and memory allow),
            ``0,1`` (GPU numbers), ``cpu:2`` (2 CPU workers), or a list of numbers or `Device`.
        pattern
            Shell pattern of files below `input_dir`. Files below `output_dir`, and in other folders
            of runs and launches, are ignored.
        worker
            A class, or a name as for `load_worker`.
        **setup_kwargs
            Keyword arguments for the worker's ``setup``.
        keywords
            Mapping with more keyword arguments for ``setup``. It may contain names of parameters of
            this method, such as ``pattern``.

        Raises
        ------
        UsageError, InputError, DeviceError
            If no file matches, an option is invalid, or no device is available.
        RunError
            If the output folder cannot be there.
        RunLockedError
            If another launch uses the output folder.
        WorkerError
            If no file was processed, for example because the setup of every worker failed.
        OSError
            If the output folder is not writable at the start.
        """
        source, target = Path(input_dir).absolute(), Path(output_dir).absolute()
        options, worker_cls = options or LaunchOptions(), load_worker(worker)
        found = self._find(source, target, pattern)
        files = self._share_of(found, options.share)
        devices = _devices(gpus)
        hooks = worker_cls if issubclass(worker_cls, FileWorker) else FileWorker
        setup = hooks.prepare(devices[0].kind, target, setup_kwargs | dict(keywords or {}))
        n_threads = options.threads or usable_cpus()
        useful = hooks.uses_gpu(setup)
        unused = unused_gpus(os.environ, useful=useful) if gpus == "auto" else ""
        if unused and (useful or not options.quiet):
            say("warning: " * useful + unused)
        if gpus == "auto" and devices[0].kind == "cpu":
            fitting = usable_memory() // 2 // hooks.memory_bytes(setup)  # in half of the memory
            devices *= max(1, min(n_threads, fitting))
        known = [*_known(files, found, partial(hooks.finished, keywords=setup), source, target)]
        n_workers = min(len(devices), max(1, len(files) - len(known)))
        gpu_ids, devices = _numbers(devices)[:n_workers], devices[:n_workers]
        threads = max(1, n_threads // n_workers)
        limit = scheduler_limit(n_workers, options.threads)
        if limit and not options.quiet:
            say(limit)
        offered = {
            "input_dir": source,
            "output_dir": target,
            "device": devices[0].kind,
            "threads": threads,
            **({} if options.lock else {"lock": False}),
        }
        setup = accepted_keywords(worker_cls, offered) | setup
        plan = _Plan(
            *(source, target, pattern, found, files, known),
            *(worker_cls, gpu_ids, devices, threads, setup),
        )
        return self._execute(plan, options)

    run = _exit_code_of(launch)

    def validate_setup(self, input_dir: Path | str, gpus: str | Sequence[int]) -> tuple[bool, str]:
        """Return two values: whether folder and GPUs are valid, and an error message or ""."""
        ok, error = self.resource_allocator.validate_input_dir(input_dir)
        if not ok:
            return False, error
        try:
            _devices(gpus)
        except VirnucproError as raised:
            return False, str(raised)
        return True, ""

    def get_workload_info(self, input_dir: Path | str, pattern: str = "*") -> dict[str, Any]:
        """Return the number and sizes of input files; see `ResourceAllocator.estimate_workload`."""
        allocator = self.resource_allocator
        return allocator.estimate_workload(allocator.discover_files(input_dir, pattern))

    def get_gpu_info(self) -> dict[str, Any]:
        """Return a dict about the GPUs that this process can use.

        Its keys: count; ids (GPU numbers); cuda_available; details (properties of each GPU).
        """
        gpu_ids = self.gpu_detector.get_available_gpus()
        return {
            "count": len(gpu_ids),
            "ids": gpu_ids,
            "cuda_available": bool(gpu_ids),
            "details": [self.gpu_detector.get_gpu_info(gpu_id) for gpu_id in gpu_ids],
        }

    def _find(self, source: Path, target: Path, pattern: str) -> Found:
        """Return the input paths like `look_through`, but without paths in the output folder."""
        output = real_path(target)
        found = self.resource_allocator.look_through(source, pattern)
        if is_run(target):
            raise UsageError(
                f"{target}: is the folder of a run. Choose another output folder: each file gets a "
                "folder of its own in it."
            )
        if real_path(source).is_relative_to(output):
            raise UsageError(
                f"{target}: the output folder is the input folder, or contains it. Choose "
                "another output folder."
            )
        found = {
            path: why
            for path, why in found.items()
            if not (path if why else real_path(path)).is_relative_to(output)
        }
        if all(found.values()):
            reasons = "".join(f" {path}: {why}" for path, why in sorted(found.items()))
            raise InputError(
                f"{source}: no file matches {pattern!r}.{reasons} Give another folder or another "
                "pattern ('**/' also searches subfolders, but not those of runs and launches; a "
                "name that begins with a dot needs a pattern such as '.*')."
            )
        for file in found:
            if (name := file.relative_to(source).parts[0]) in OWN_NAMES:
                raise UsageError(
                    f"{file}: the result of this input would overwrite {name} of the launch. "
                    "Rename the input, or give a narrower pattern."
                )
        return dict(sorted(found.items()))

    def _share_of(self, found: Found, share: FileShare | None) -> Sequence[Path]:
        """Return the sorted files of this process."""
        if share is None:
            return list(found)
        allocator = self.resource_allocator
        return sorted(allocator.largest_first(list(found))[share.number :: share.count])

    def _execute(self, plan: "_Plan", options: LaunchOptions) -> LaunchReport:
        """Process the files of a launch, or of a share of it; write the tables."""
        share = options.share
        if share is None:
            return self._process(plan, options, plan.target, lambda: True)
        joined = plan.source, plan.target, list(plan.found), plan.facts, share.count
        join = partial(join_tables, *joined)
        try:
            report = self._process(plan, options, share.folder(plan.target), join)
        finally:
            is_joined = join()
        return report if is_joined else replace(report, exit_code=report.exit_code or 2)

    def _process(
        self,
        plan: "_Plan",
        options: LaunchOptions,
        own: Path,
        begun: Callable[[], object],
    ) -> LaunchReport:
        """Process the files of this process; its table, lock and logs are in the folder `own`."""
        logs, tasks = own / LOGS_NAME, plan.target / TASKS_NAME
        refuse_links((*([] if own == plan.target else [tasks, own]), logs, *logs.glob("*.log")))
        files, allocator = plan.files, self.resource_allocator
        inputs = [path.relative_to(plan.source) for path in files]
        refuse_links({plan.target / name for path in inputs for name in (path, *path.parents[:-1])})
        require_regular(logs.glob("*.log"))
        make_folder(own)
        answered = {result.file for result in plan.known}
        usable = [path for path in files if str(path) not in answered]
        names = dict(zip(plan.gpu_ids, map(str, plan.devices), strict=True))
        balancer = self.load_balancer = LoadBalancer(plan.gpu_ids if usable else (), devices=names)
        live = not options.quiet and _has_live_table()
        spawner = self.process_spawner = ProcessSpawner(
            max_attempts=options.max_attempts,
            file_timeout=options.file_timeout,
            setup_timeout=options.start_timeout,
            progress_timeout=options.progress_timeout,
            environment=thread_variables(plan.threads, os.environ),
            log_folder=logs,
            show_ui=live,
        )
        table = LaunchTable(plan.source, own, files, plan.facts, balancer)
        printer = ResultPrinter(balancer, spawner.get_process_status, options.quiet, live)

        def receive(item: FileResult | WorkerTrouble) -> None:
            printer.print(item)
            table.update()

        def wait(seconds: float) -> None:
            printer.print_activity(seconds)
            table.update()  # the last result may have come too soon after the one before

        advice = "Wait for it to end, or choose another folder."
        with folder_lock(own / LOCK_NAME, advice, held=options.lock):
            remove_unfinished(own, OWN_NAMES.__contains__)
            balancer.results.extend(plan.known)
            if not options.quiet and len(files) > len(usable):
                known = counted(len(files) - len(usable), "file")
                balancer.say(f"{known} need no worker: finished before, or not readable")
            table.begin()
            begun()
            try:
                if usable:
                    results = allocator.create_result_queue()
                    spawner.spawn_workers(
                        plan.gpu_ids,
                        allocator.create_task_queue(usable, len(plan.gpu_ids)),
                        results,
                        plan.worker,
                        devices=plan.devices,
                        total_files=len(usable),
                        keywords=plan.keywords,
                    )
                    balancer.monitor_progress(results, len(files), receive, wait)
                    spawner.wait_for_completion()
            finally:
                spawner.terminate_all()
                report = table.end()
        _require_some_work(balancer, report)
        if not options.quiet:
            balancer.print_summary(len(files))
        return report


@dataclass(frozen=True, slots=True)
class _Plan:
    """Checked inputs of a launch: paths, own files, worker class, devices, keyword arguments.

    `known` are the results of the files that no worker gets.
    """

    source: Path
    target: Path
    pattern: str
    found: Found
    files: Sequence[Path]
    known: Sequence[FileResult]
    worker: type[BaseWorker]
    gpu_ids: Sequence[int]
    devices: Sequence[Device]
    threads: int
    keywords: Mapping[str, Any]

    @property
    def facts(self) -> dict[str, Any]:
        """Input folder, pattern, worker class and devices, as a dict for ``launch.json``."""
        module = file_of(self.worker) or self.worker.__module__
        return {
            "input_dir": str(self.source),
            "pattern": self.pattern,
            "worker": f"{module}:{self.worker.__qualname__}",
            "devices": [str(device) for device in self.devices],
        }


def _known(
    files: Iterable[Path],
    found: Found,
    finished: Callable[[str, Path, Path], dict[str, Any] | None],
    source: Path,
    target: Path,
) -> Iterator[FileResult]:
    """Yield the results of files that cannot be read, and of those that are finished."""
    for file in files:
        if found[file]:
            yield FileResult(str(file), FileStatus.FAILED, error=found[file])
        elif (result := finished(str(file), source, target)) is not None:
            complete = result.pop("complete", True)
            status = FileStatus.SKIPPED if complete else FileStatus.PARTIAL
            yield FileResult(str(file), status, result=result)


def _has_live_table() -> bool:
    """Return whether standard error is a terminal and rich is installed."""
    terminal = sys.stderr is not None and sys.stderr.isatty()
    return terminal and importlib.util.find_spec("rich") is not None


def _devices(gpus: object) -> list[Device]:
    """Return the devices for the value of ``--devices``; without a GPU, ``auto`` gives one CPU."""
    if isinstance(gpus, str):
        return parse_devices(gpus, os.environ)
    listed = list(gpus) if isinstance(gpus, Sequence) else []
    devices = [gpu for gpu in listed if isinstance(gpu, Device)]
    if devices == listed and len({device.kind for device in devices}) == 1:
        return devices
    if not listed or not all(type(gpu) is int for gpu in listed):
        raise UsageError(
            f"{gpus!r} is not a valid choice of devices. Give 'auto', GPU numbers such as '0,1', "
            "'cpu:2' (two CPU workers), a list of GPU numbers, or a list of devices of one kind."
        )
    return parse_devices(",".join(map(str, listed)), os.environ)


def _numbers(devices: Sequence[Device]) -> list[int]:
    """Return a number for each worker: 0, 1, ..., or the GPU numbers if all are visible GPUs."""
    visible = list(visible_gpus(os.environ)) if devices[0].kind == "cuda" else []
    masks = [device.mask for device in devices]
    if all(mask in visible for mask in masks):
        return [visible.index(mask) for mask in masks if mask is not None]
    return list(range(len(devices)))


def _require_some_work(balancer: LoadBalancer, report: LaunchReport) -> None:
    """Raise WorkerError if the launch failed before a worker processed any file."""
    if balancer.error is None or any(outcome.gpu_id is not None for outcome in report.results):
        return
    reasons = "; ".join(balancer.troubles) or str(balancer.error)
    raise WorkerError(
        f"no file was processed: {reasons.rstrip('.')}. Fix this error and rerun the command."
    ) from balancer.error


run_multi_gpu = LauncherOrchestrator().run
"""Run a launch in one call: print its errors, and return the exit code."""
