"""Count words in text files with a pool of workers; needs neither sequences nor GPUs.

    python scripts/word_counts.py --workers 2 README.md docs/*.md

A worker is a class with `setup` and `process`, in a module or an importable program. An unreadable
file is reported, the others are counted, and the exit code is 2.

The same for a folder of files, with a table at the end:

    virnucpro launch --input-dir docs --pattern '*.md' -o out --devices cpu:2 \
        --worker scripts/word_counts.py:WordStatistics --set shortest=4
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
        """Compile the pattern of a word; a real worker would load its model here."""
        self._word = re.compile(rf"\w{{{kwargs['shortest']},}}")

    def process(self, data: str) -> Counter[str]:
        """Count the words of the file `data`."""
        return Counter(self._word.findall(Path(data).read_text(encoding="utf-8").lower()))


class WordStatistics(WordCounter):
    """Counts the words of one file and returns a summary."""

    def process(self, data: str) -> dict[str, int | str]:  # type: ignore[override] # other numbers
        """Count the words of the file `data`; the result is its row in the table."""
        counts = super().process(data)
        most_common = max(counts, key=lambda word: (counts[word], word), default="")
        return {"words": counts.total(), "distinct": len(counts), "most_common": most_common}


def main() -> int:
    """Count and print; return the exit code."""
    parser = argparse.ArgumentParser(description="Count words in text files.")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shortest", type=int, default=4, help="minimum length of a word")
    parser.add_argument("--top", type=int, default=10, help="number of words to print")
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
