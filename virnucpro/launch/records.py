"""Records in memory, over the devices."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from virnucpro.dispatch import BaseWorker, Dispatcher
from virnucpro.launch.allocator import contiguous
from virnucpro.launch.results import reason_of
from virnucpro.launch.worker_spec import load_worker
from virnucpro.runtime.devices import Device, devices_of_ranks, parse_devices, visible_gpus

__all__ = ["distribute_to_gpus", "process_records"]

Record = TypeVar("Record")


def distribute_to_gpus(
    records: Sequence[Record], n_gpus: int
) -> list[tuple[Sequence[Record], int, int]]:
    """Cut records into runs of neighbours, one a GPU, each of ``ceil(len(records) / n_gpus)``.

    Returns
    -------
    ``(records, gpu_id, position)`` for each GPU that has any; the position is that of its bar.

    Raises
    ------
    ValueError
        When `n_gpus` is below 1.
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
    """Have records processed in batches; who is free takes the next. None is ever dropped.

    Parameters
    ----------
    records
        Dicts, or what the worker understands; all are held in memory.
    worker
        Its ``process`` takes a list of up to `batch_size` records and returns a list of as many
        dicts. A class, or what `load_worker` takes.
    n_gpus
        How many workers.
    devices
        What they see; the first GPUs by default, CPUs where there is none.
    max_attempts, batch_timeout
        How often a batch may be begun whose workers die, and how many seconds it may take.
    **setup_kwargs
        For the worker's ``setup``.
    keywords
        More of them, whatever they are called.

    Returns
    -------
    What the worker made of each, in their order; of a batch that failed, or that no worker was left
    for, the records themselves, with the reason in ``_error``. A record that is no mapping stands
    under ``_record`` then.

    Raises
    ------
    ValueError
        When `n_gpus` or `batch_size` is below 1.
    DeviceError
        When there are fewer devices than workers.
    """
    if n_gpus < 1 or batch_size < 1:
        raise ValueError("n_gpus and batch_size must be at least 1.")
    batches = _Batches(list(records), batch_size)
    if not batches.tasks:
        return []
    dispatcher = Dispatcher(
        load_worker(worker) if isinstance(worker, str) else worker,
        range(n_gpus),
        devices=_devices(n_gpus, devices),
        max_attempts=max_attempts,
    )
    try:
        dispatcher.run(
            batches.tasks,
            batches.take,
            on_error=lambda batch, text, _: batches.fail(batch, reason_of(text)),
            on_timeout=lambda batch, limit, _: batches.fail(batch, f"took longer than {limit:g} s"),
            task_timeout=batch_timeout,
            keywords=setup_kwargs | dict(keywords or {}),
        )
    except RuntimeError as error:  # no worker is left: the records must not be lost with them
        return batches.answered(str(error))
    return batches.answered("no worker has answered")


class _Batches:
    """Records in runs of `size`, and what became of them."""

    def __init__(self, records: Sequence[Any], size: int) -> None:
        self.tasks = [list(records[at : at + size]) for at in range(0, len(records), size)]
        self._answers: dict[int, list[dict[str, Any]]] = {}

    def take(self, batch: int, made: object, _worker: int) -> None:
        """Take what a worker made of a batch."""
        size = len(self.tasks[batch])
        if (
            isinstance(made, list | tuple)
            and len(made) == size
            and all(isinstance(one, Mapping) for one in made)
        ):
            self._answers[batch] = [dict(one) for one in made]
        else:
            self.fail(batch, f"the worker must return a list of {size} dicts, one a record")

    def fail(self, batch: int, why: str) -> None:
        """Give a batch back as it is, with the reason."""
        self._answers[batch] = [
            {**(record if isinstance(record, Mapping) else {"_record": record}), "_error": why}
            for record in self.tasks[batch]
        ]

    def answered(self, otherwise: str) -> list[dict[str, Any]]:
        """Give all records in order, `otherwise` being why some have no answer."""
        for batch in range(len(self.tasks)):
            if batch not in self._answers:
                self.fail(batch, otherwise)
        return [record for batch in sorted(self._answers) for record in self._answers[batch]]


def _devices(n_gpus: int, devices: str | Sequence[int | str | Device] | None) -> Sequence[Device]:
    """Give each worker its own."""
    if devices is None:
        return devices_of_ranks(n_gpus, list(visible_gpus(os.environ)) or ["cpu"] * n_gpus, {})
    if isinstance(devices, str):
        devices = parse_devices(devices, os.environ)
    return devices_of_ranks(n_gpus, devices, os.environ)
