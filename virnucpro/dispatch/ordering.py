"""Sorting of answers by task. Pure."""

from collections.abc import Iterable, Iterator

from virnucpro.dispatch.protocol import Answers, Event, TaskError, TaskSuccess, TaskTimeout

__all__ = ["in_order"]


def in_order(events: Iterable[Event]) -> Iterator[Event]:
    """Yield answers in the order of their tasks, other events at once."""
    held: dict[int, Event] = {}
    turn = 0
    for event in events:
        if isinstance(event, Answers):
            for task_id, data in zip(event.task_ids, event.data, strict=True):
                held[task_id] = TaskSuccess(task_id, data, event.worker_id)
        elif isinstance(event, TaskSuccess | TaskError | TaskTimeout):
            held[event.task_id] = event
        else:
            yield event
        while turn in held:
            yield held.pop(turn)
            turn += 1
