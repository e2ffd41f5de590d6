"""Number of this task, from the command line or from the variables of a launcher."""

import os
import re
from argparse import ArgumentTypeError
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from virnucpro.errors import UsageError


@dataclass(frozen=True, slots=True)
class Task:
    """Number of a task, from 0, and the number of all tasks."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


LAUNCHERS: Final = (
    ("RANK", "WORLD_SIZE"),  # torchrun, accelerate
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),  # srun; a batch script has SLURM_PROCID alone
)
"""Variables of launchers that start several processes of one job: number and count."""

_ARRAY: Final = tuple(f"SLURM_ARRAY_TASK_{name}" for name in ("ID", "MIN", "MAX", "STEP"))


def task_option(text: str) -> Task:
    """Return the task of ``--task``: K/N, or ``auto`` for that of the environment.

    Raises
    ------
    ArgumentTypeError
        For the errors of `parse_task` and `task_of`.
    """
    try:
        return task_of(os.environ) if text == "auto" else parse_task(text)
    except UsageError as error:
        raise ArgumentTypeError(str(error)) from error


def parse_task(text: str) -> Task:
    """Return the task that ``K/N`` names, such as ``0/8`` for the first of eight tasks.

    Raises
    ------
    UsageError
        If the text has another form, or K is not below N.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text, re.ASCII)
    task = Task(int(match[1]), int(match[2])) if match else Task(0, 0)
    if task.number >= task.count:
        raise UsageError(f"invalid task {text!r}: give K/N with K from 0 to N-1, such as 0/8")
    return task


def task_of(environment: Mapping[str, str]) -> Task:
    """Return the task that the variables of schedulers and launchers describe.

    The elements of a SLURM array are tasks. If a launcher within an element starts several
    processes, each process is a task. Without any of these variables the result is task 0 of 1.

    Raises
    ------
    UsageError
        If two launchers disagree, or a variable is missing or invalid.
    """
    outer, inner = _array(environment), _launcher(environment)
    return Task(outer.number * inner.count + inner.number, outer.count * inner.count)


def _array(environment: Mapping[str, str]) -> Task:
    if not environment.get(_ARRAY[0]):
        return Task(0, 1)
    number, first, last, step = (_number(environment, name) for name in _ARRAY)
    if step < 1 or not first <= number <= last or (number - first) % step:
        values = ", ".join(f"{name}={environment[name]}" for name in _ARRAY)
        raise UsageError(f"the variables of the array disagree: {values}. Give --task K/N.")
    return Task((number - first) // step, (last - first) // step + 1)


def _launcher(environment: Mapping[str, str]) -> Task:
    task_of_launcher = {
        names: Task(_number(environment, names[0]), _number(environment, names[1]))
        for names in LAUNCHERS
        if environment.get(names[0]) and environment.get(names[1])
    }
    # A process that a launcher starts for one task only says nothing about the number of tasks.
    tasks = {task for task in task_of_launcher.values() if task != Task(0, 1)}
    if len(tasks) > 1 or any(task.number >= task.count for task in tasks):
        names_given = (name for names in task_of_launcher for name in names)
        values = ", ".join(f"{name}={environment[name]}" for name in names_given)
        raise UsageError(f"the variables of launchers disagree: {values}. Give --task K/N.")
    return next(iter(tasks), Task(0, 1))


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if not text.isdecimal():
        raise UsageError(f"the variable {name} is {text!r}, not a number. Give --task K/N.")
    return int(text)
