"""Count words in text files with workers: the dispatcher has no need of sequences or devices.

    python scripts/word_counts.py --workers 2 README.md docs/*.md

A worker is any class with `setup` and `process`, in a module or a program that can be imported. A
file that cannot be read is reported and harms no other. Exit code 2 says that there was one.
"""

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

from virnucpro.dispatch import BaseWorker
from virnucpro.dispatch.ui import RichDispatcher


class WordCounter(BaseWorker):
    """Counts the words of one file a task."""

    def setup(self, gpu_id: int, seed: int, **kwargs: int) -> None:  # noqa: ARG002 - the contract
        """Compile what a word is; a model would be loaded here."""
        self._word = re.compile(rf"\w{{{kwargs['shortest']},}}")

    def process(self, data: str) -> Counter[str]:
        """Count the words of the file `data`."""
        return Counter(self._word.findall(Path(data).read_text(encoding="utf-8").lower()))


def main() -> int:
    """Count and print; return the exit code."""
    parser = argparse.ArgumentParser(description="Count words in text files.")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shortest", type=int, default=4, help="letters of the shortest word")
    parser.add_argument("--top", type=int, default=10, help="how many words to print")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    stats = RichDispatcher(WordCounter, range(options.workers)).run(
        options.files,
        lambda _task, found, _worker: counts.update(found),
        total_tasks=len(options.files),
        task_timeout=60.0,
        shortest=options.shortest,
    )
    for word, count in counts.most_common(options.top):
        print(f"{count}\t{word}")
    return 0 if stats["completed"] == stats["total"] else 2


if __name__ == "__main__":
    sys.exit(main())
