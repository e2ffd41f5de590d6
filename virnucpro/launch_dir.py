"""Names of the files in the output folder of a launch. No other module defines such names.

::

    OUT/launch.tsv, OUT/launch.json     table of all files
    OUT/launch.predictions.tsv          merged outputs of all files, see `MERGED_NAMES`
    OUT/launch.logs/                    output of the workers
    OUT/launch.lock                     locked by the process that runs the launch
    OUT/launch.tasks/0003-of-0008/      table, lock and logs of task 3 of 8
"""

from pathlib import Path
from typing import Final

TSV_NAME: Final = "launch.tsv"
JSON_NAME: Final = "launch.json"
LOGS_NAME: Final = "launch.logs"
LOCK_NAME: Final = "launch.lock"
TASKS_NAME: Final = "launch.tasks"

MERGED_NAMES: Final = {
    name: f"launch.{name}"
    for name in (
        "predictions.tsv",
        *(
            f"{kind}{end}"
            for kind in ("viral.fasta", "viral.fastq", "viruses.fasta")
            for end in ("", ".gz")
        ),
    )
}
"""Name of the merged file for each output that is merged."""

OWN_NAMES: Final = {TSV_NAME, JSON_NAME, LOGS_NAME, LOCK_NAME, TASKS_NAME, *MERGED_NAMES.values()}
"""All names in the output folder that are not those of results of a file."""


def task_folder(target: Path, number: int, count: int) -> Path:
    """Return the folder of task `number`, from 0, of `count` tasks in the output folder."""
    return target / TASKS_NAME / f"{number:04d}-of-{count:04d}"


def task_tables(target: Path, count: int) -> list[Path]:
    """Return the sorted paths of the existing launch.json of `count` tasks."""
    return sorted(target.glob(f"{TASKS_NAME}/*-of-{count:04d}/{JSON_NAME}"))


def is_launch(folder: Path) -> bool:
    """Return whether the folder contains the table of a launch."""
    return (folder / JSON_NAME).is_file()
