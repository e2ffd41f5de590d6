"""Kill random processes of runs at random moments, resume them, and see that nothing is wrong.

Each campaign has an input, world sizes and blows of its own, all drawn from its seed. It ends when
the run is complete; then all that was committed must still be there as it was written, the tables
must be those of a run that nothing happened to, and each row must be there exactly once. Moments
are drawn, too, but what they hit depends on the machine: the same seed is the same campaign, not
the same course of it.

    python scripts/soak.py --campaigns 25
    python scripts/soak.py --minutes 2
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

from soaking.campaign import Campaign, run_campaign
from soaking.strikes import Strike


def main(argv: Sequence[str] | None = None) -> int:
    """Run campaigns; give the exit code."""
    options = _options(argv)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        # A shell's background jobs ignore Ctrl-C, and the runs that they start would inherit that.
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
            blows=options.blows,
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
        "--campaigns", type=_positive, help="default: 25, or as many as fit in --minutes"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin none after that")
    parser.add_argument("--seed", type=int, default=None, help="of the first; default: any")
    parser.add_argument("--keep", action="store_true", help="keep the folders of all campaigns")
    parser.add_argument("--folder", type=Path, help="where to work; default: the temporary one")
    parser.add_argument("--max-ranks", type=int, default=7, help="default: %(default)s")
    parser.add_argument("--records", type=int, default=2_000, help="default: about %(default)s")
    parser.add_argument("--blows", type=int, default=7, help="most in a campaign (%(default)s)")
    options = parser.parse_args(argv)
    if options.campaigns is None:
        options.campaigns = 25 if options.minutes == float("inf") else sys.maxsize
    if options.seed is None:
        options.seed = secrets.randbelow(10**6)
    return options


def _positive(text: str) -> int:
    """Refuse a soak of no campaigns: it would find that nothing was wrong."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is none; give 1 or more")
    return number


def line_of(campaign: Campaign, seconds: float) -> str:
    """Tell of one campaign."""
    worlds = " ".join(map(str, campaign.worlds))
    strikes = ", ".join(f"{one} {n}" for one, n in _counted(campaign.strikes))
    rows = f"{campaign.rows.n:,} rows" if campaign.rows else "no rows"
    head = f"seed {campaign.seed}: {rows}, worlds {worlds}, {strikes or 'no strike'}"
    if not campaign.problems:
        return f"{head}: complete, {seconds:.0f} s"
    return "\n  ".join([f"{head}: WRONG", *campaign.problems, f"kept: {campaign.folder}"])


def _counted(strikes: Sequence[Strike]) -> list[tuple[str, int]]:
    return sorted(Counter(map(str, strikes)).items())


def summary(done: Sequence[Campaign], seconds: float) -> str:
    """Tell of all campaigns."""
    wrong = [str(one.seed) for one in done if one.problems]
    rows = [one.rows for one in done if one.rows]
    strikes = [strike for one in done for strike in one.strikes]
    launches = sum(len(one.worlds) for one in done)
    lost, doubled = sum(one.lost for one in rows), sum(one.doubled for one in rows)
    without = sum(one.not_finite for one in rows)
    spare = sum(one.spare_segments for one in rows)
    counted = ", ".join(f"{one} {n}" for one, n in _counted(strikes)) or "none"
    lines = [
        f"{len(done)} campaigns, {launches} launches, {seconds / 60:.1f} minutes",
        f"{len(strikes)} strikes: {counted}",
        f"{sum(one.n for one in rows):,} rows: {lost} lost, {doubled} doubled, {without} without",
    ]
    lines[-1] += f" numbers; {spare} segments done twice"
    if wrong:
        lines.append(f"WRONG: seeds {', '.join(wrong)}; repeat with --campaigns 1 --seed SEED")
    else:
        lines.append("every campaign ended complete, and nothing was wrong")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
