"""Processing of records (any objects in memory, not only FASTA) by workers on several devices."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from virnucpro.dispatch import BaseWorker, Dispatcher
from virnucpro.launch.allocator import contiguous
from virnucpro.launch.results import reason_of
from virnucpro.launch.worker_spec import load_worker
from virnucpro.runtime.devices import Device, devices_of_ranks, parse_devices, visible_gpus

Record = TypeVar("Record")


def distribute_to_gpus(
    records: Sequence[Record], n_gpus: int
) -> list[tuple[Sequence[Record], int, int]]:
    """Divide records into contiguous parts of ``ceil(len(records) / n_gpus)``, one per GPU.

    Returns
    -------
    A list with one tuple for each GPU that has records: the records, the number of the GPU, and the
    line of its progress bar on the terminal (equal to the number of the GPU).

    Raises
    ------
    ValueError
        If `n_gpus` is below 1.
    """
    parts = contiguous(records, n_gpus)
    return [(part, gpu, gpu) for gpu, part in enumerate(parts) if part]


def process_records(
    records: Iterable[Any],
    worker: type[BaseWorker] | str,
    n_gpus: int,
    batch_size: int = 128,
    *,
    devices: str | Sequence[int | str | Device] | None = None,
    max_attempts: int = 2,
    batch_timeout: float | None = None,
    keywords: Mapping[str, Any] | None = None,
    **setup_kwargs: Any,  # noqa: ANN401 - the worker's own
) -> list[dict[str, Any]]:
    """Process records in batches on several devices; return one result dict per record.

    An idle worker gets the next batch. No record is lost.

    Parameters
    ----------
    records
        Dicts, or other objects that the worker accepts. All records are held in memory.
    worker
        A class, or a name as for `load_worker`. Its ``process`` takes a list of up to
        `batch_size` records and returns a list of as many dicts.
    n_gpus
        Number of workers.
    devices
        Devices of the workers; default: the first GPUs, or CPUs if there is no GPU.
    max_attempts, batch_timeout
        Maximum attempts for a batch if workers die; time limit of a batch in seconds.
    **setup_kwargs
        Keyword arguments for the worker's ``setup``.
    keywords
        Mapping with more keyword arguments for ``setup``. It may contain names of parameters of
        this function, such as ``records``.

    Returns
    -------
    One dict per record, in the order of the records. If a batch failed, each of its records is
    returned as a dict with the extra key ``_error`` (the reason). If the record is not a mapping,
    it is stored under the key ``_record``.

    Raises
    ------
    ValueError
        If `n_gpus` or `batch_size` is below 1.
    DeviceError
        If there are fewer devices than workers.
    """
    if n_gpus < 1 or batch_size < 1:
        raise ValueError("n_gpus and batch_size must be at least 1.")
    listed = list(records)
    batches = [listed[at : at + batch_size] for at in range(0, len(listed), batch_size)]
    if not batches:
        return []
    dispatcher = Dispatcher(
        load_worker(worker),
        range(n_gpus),
        devices=_devices(n_gpus, devices),
        max_attempts=max_attempts,
    )
    results: dict[int, list[dict[str, Any]]] = {}
    reason = "no worker returned a result"
    try:
        for outcome in dispatcher.imap(
            batches, task_timeout=batch_timeout, keywords=setup_kwargs | dict(keywords or {})
        ):
            results[outcome.number] = (
                _checked(outcome.task, outcome.value)
                if outcome.ok
                else _failed(outcome.task, reason_of(outcome.error))
            )
    except RuntimeError as error:  # all workers failed: the records are returned
        reason = str(error)
    return [
        record
        for number, batch in enumerate(batches)
        for record in results.get(number) or _failed(batch, reason)
    ]


def _checked(batch: Sequence[Any], returned: object) -> list[dict[str, Any]]:
    if (
        isinstance(returned, list | tuple)
        and len(returned) == len(batch)
        and all(isinstance(record, Mapping) for record in returned)
    ):
        return [dict(record) for record in returned]
    return _failed(batch, f"the worker must return a list of {len(batch)} dicts, one per record")


def _failed(batch: Sequence[Any], reason: str) -> list[dict[str, Any]]:
    return [
        {**(record if isinstance(record, Mapping) else {"_record": record}), "_error": reason}
        for record in batch
    ]


def _devices(n_gpus: int, devices: str | Sequence[int | str | Device] | None) -> Sequence[Device]:
    """Return a device for each worker: the given `devices`, or by default GPUs, else CPUs."""
    if devices is None:
        return devices_of_ranks(n_gpus, list(visible_gpus(os.environ)) or ["cpu"] * n_gpus, {})
    if isinstance(devices, str):
        devices = parse_devices(devices, os.environ)
    return devices_of_ranks(n_gpus, devices, os.environ)
