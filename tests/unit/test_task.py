"""The number of a task, from the variables of schedulers and launchers."""

import pytest

from virnucpro.errors import UsageError
from virnucpro.task import Task, parse_task, task_of


def array(number, first, last, step):
    names = ("ID", "MIN", "MAX", "STEP")
    values = (number, first, last, step)
    return {
        f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in zip(names, values, strict=True)
    }


TORCHRUN = {"RANK": "2", "WORLD_SIZE": "3"}
BATCH_SHELL = {"SLURM_PROCID": "0", "SLURM_JOB_NUM_NODES": "4", "SLURM_NTASKS": "4"}
STEP = {**BATCH_SHELL, "SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Task(0, 1)),
        (array(0, 0, 3, 1), Task(0, 4)),
        (array(7, 1, 9, 2), Task(3, 5)),
        (array(5, 5, 5, 1), Task(0, 1)),
        (TORCHRUN, Task(2, 3)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, Task(1, 2)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, Task(0, 2)),
        (BATCH_SHELL, Task(0, 1)),
        (STEP, Task(3, 4)),
        ({**STEP, "PMI_RANK": "3", "PMI_SIZE": "4"}, Task(3, 4)),
        ({**TORCHRUN, "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, Task(2, 3)),
        ({**array(2, 0, 3, 1), **STEP}, Task(11, 16)),
        ({"RANK": "2"}, Task(0, 1)),
        ({"RANK": "", "WORLD_SIZE": ""}, Task(0, 1)),
    ],
)
def test_the_task_of_an_environment(environment, expected):
    assert task_of(environment) == expected


TEXTS = ["", "8/8", "1", "a/b", "1/0", "-1/3", " 1/3", "1/3/4", "٣/٨"]


@pytest.mark.parametrize(
    ("read", "given", "message"),
    [
        (task_of, {**TORCHRUN, **STEP}, "disagree: RANK=2, WORLD_SIZE=3, SLURM_PROCID=3"),
        (task_of, {"PMI_RANK": "4", "PMI_SIZE": "4"}, "launchers disagree"),
        (task_of, {"PMI_RANK": "x", "PMI_SIZE": "4"}, "PMI_RANK is 'x'"),
        (task_of, array(4, 0, 3, 1), "array disagree"),
        (task_of, array(2, 1, 9, 2), "array disagree"),
        (task_of, array(1, 0, 3, 0), "array disagree"),
        (task_of, {"SLURM_ARRAY_TASK_ID": "1"}, "SLURM_ARRAY_TASK_MIN is ''"),
        *((parse_task, text, "give K/N") for text in TEXTS),
    ],
)
def test_contradictions_and_other_texts_are_refused(read, given, message):
    with pytest.raises(UsageError, match=message):
        read(given)


def test_a_task_of_the_command_line():
    assert parse_task("0/8") == Task(0, 8)
    assert parse_task("7/8") == Task(7, 8)
