"""Kill random processes of runs at random moments, resume the runs, and check their results.

Each campaign draws its input, world sizes and signals from its seed. It ends when the run is
complete. Then every committed segment must be unchanged, the tables must equal those of an
undisturbed run, and each row must exist exactly once. The moments are drawn too, but their effect
depends on the machine: a seed repeats the campaign, not its exact course.

    python scripts/soak.py --campaigns 25
    python scripts/soak.py --minutes 2
    python scripts/soak.py --tasks 3 --max-ranks 3

With --tasks, each run is computed by tasks of virnucpro predict, of another number at each launch,
some of them twice at once, and aggregated; whole tasks are also stopped and continued.
"""

import argparse
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from soaking.campaign import BUNDLES, Campaign, run_campaign
from soaking.signals import SentSignal


def main(argv: Sequence[str] | None = None) -> int:
    """Run campaigns; return the exit code."""
    options = _options(argv)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # Background jobs of a shell ignore SIGINT, and the runs would inherit this.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    root = Path(tempfile.mkdtemp(prefix="soak-", dir=options.folder))
    print(f"campaigns from seed {options.seed} in {root}", flush=True)
    began = time.monotonic()
    done: list[Campaign] = []
    longest = 0.0
    while len(done) < options.campaigns:
        started = time.monotonic()
        if done and started - began + longest > options.minutes * 60:
            break
        campaign = run_campaign(
            root,
            options.seed + len(done),
            records=options.records,
            max_ranks=options.max_ranks,
            max_signals=options.max_signals,
            bundle=options.bundle or BUNDLES[(options.seed + len(done)) % len(BUNDLES)],
            max_tasks=options.tasks,
        )
        done.append(campaign)
        longest = max(longest, time.monotonic() - started)
        print(line_of(campaign, time.monotonic() - started), flush=True)
        if not (campaign.problems or options.keep):
            shutil.rmtree(campaign.folder)
    failed = [one for one in done if one.problems]
    if not (failed or options.keep):
        root.rmdir()
    print(summary(done, time.monotonic() - began))
    return 1 if failed else 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--campaigns", type=_positive, help="default: 25; with --minutes as many as fit"
    )
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="start no campaign after this time"
    )
    parser.add_argument(
        "--seed", type=int, default=None, help="seed of the first campaign; default: random"
    )
    parser.add_argument("--keep", action="store_true", help="keep the folders of all campaigns")
    parser.add_argument("--folder", type=Path, help="working folder; default: a temporary one")
    parser.add_argument(
        "--max-ranks", type=int, default=7, help="maximum ranks of a launch; default: %(default)s"
    )
    parser.add_argument(
        "--tasks", type=_positive, default=0, help="maximum tasks at once; default: no tasks"
    )
    parser.add_argument(
        "--records", type=int, default=2_000, help="approximate number; default: %(default)s"
    )
    parser.add_argument(
        "--max-signals",
        type=int,
        default=7,
        help="maximum signals of a campaign; default: %(default)s",
    )
    parser.add_argument(
        "--bundle",
        choices=BUNDLES,
        help="mini-deep is slow, so that signals hit its work; mini judges records by their genes; "
        "default: by the seed",
    )
    options = parser.parse_args(argv)
    if options.campaigns is None:
        options.campaigns = 25 if options.minutes == float("inf") else sys.maxsize
    if options.seed is None:
        options.seed = secrets.randbelow(10**6)
    return options


def _positive(text: str) -> int:
    """Parse a number from 1: a soak without campaigns would report success."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number}: give 1 or more")
    return number


def line_of(campaign: Campaign, seconds: float) -> str:
    """Summarise one campaign."""
    worlds = " ".join(map(str, campaign.worlds))
    sent = ", ".join(f"{one} {n}" for one, n in _counted(campaign.sent))
    rows = f"{campaign.rows.n:,} rows" if campaign.rows else "no rows"
    head = (
        f"seed {campaign.seed}: {campaign.bundle}, {rows}, worlds {worlds}, {sent or 'no signal'}"
    )
    if not campaign.problems:
        return f"{head}: complete, {seconds:.0f} s"
    return "\n  ".join([f"{head}: FAILED", *campaign.problems, f"kept: {campaign.folder}"])


def _counted(sent: Sequence[SentSignal]) -> list[tuple[str, int]]:
    return sorted(Counter(map(str, sent)).items())


def summary(done: Sequence[Campaign], seconds: float) -> str:
    """Summarise all campaigns."""
    wrong = [str(one.seed) for one in done if one.problems]
    rows = [one.rows for one in done if one.rows]
    sent = [each for one in done for each in one.sent]
    launches = sum(len(one.worlds) for one in done)
    lost, doubled = sum(one.lost for one in rows), sum(one.doubled for one in rows)
    n_rows, not_finite = sum(one.n for one in rows), sum(one.not_finite for one in rows)
    counted = ", ".join(f"{one} {n}" for one, n in _counted(sent)) or "none"
    lines = [
        f"{len(done)} campaigns, {launches} launches, {seconds / 60:.1f} minutes",
        f"{len(sent)} signals: {counted}",
        f"{n_rows:,} rows: {lost} lost, {doubled} doubled, {not_finite} not finite",
        f"{sum(one.spare_segments for one in rows)} segments computed twice",
    ]
    if wrong:
        lines.append(f"FAILED: seeds {', '.join(wrong)}; repeat with --campaigns 1 --seed SEED")
    else:
        lines.append("every campaign is complete, no problem found")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
