"""Tables of simulated runs, in Markdown."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import mean
from typing import Any, Final

from simulation.board import BIN_S
from simulation.run import Outcome, Policy, Scenario

Simulate = Callable[[Iterable[Scenario]], Iterator[Outcome]]
"""Simulates scenarios, in their order."""

BASE: Final = Scenario(
    tasks=512,
    units=30 * 512,
    unit_seconds=900,
    queue_seconds=600,
    slow_share=0.02,
    slow_factor=2,
    mtbf_hours=48,
)
SEEDS: Final = 2
"""Seeds over which each figure is averaged; one above `MOST_RANKS` workers."""

MOST_RANKS: Final = 1000
PROTOTYPE: Final = {64: ("41 %", "6 %"), 512: ("61 %", "7 %"), 4096: ("67 %", "11 %")}


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))


def means(
    simulate: Simulate, scenarios: Sequence[Scenario], **values: Callable[[Outcome], float]
) -> list[dict[str, float]]:
    """Simulate each scenario with all seeds; return the means of values of the outcomes."""
    seeds = [range(1, 2 if one.tasks * one.ranks > MOST_RANKS else SEEDS + 1) for one in scenarios]
    found = simulate(
        replace(one, seed=seed) for one, own in zip(scenarios, seeds, strict=True) for seed in own
    )
    outcomes = [[next(found) for _ in own] for own in seeds]
    return [{name: mean(map(value, own)) for name, value in values.items()} for own in outcomes]


def peak_calls(outcome: Outcome) -> float:
    """Return the calls per second in the minute with the most."""
    return max(outcome.calls.values(), default=0) / BIN_S


FIGURES: Final[Mapping[str, Callable[[Outcome], float]]] = {
    "idle": lambda one: one.idle,
    "allocation": lambda one: one.idle_allocation,
    "end": lambda one: one.end / 3600,
    "double": lambda one: one.double / one.units,
    "left": lambda one: one.left,
    "cut": lambda one: one.cut / one.held,
    "peak": peak_calls,
    "overhead": lambda one: (one.held - one.useful) / 3600,
}


def share(value: float) -> str:
    """Format a share."""
    return f"{value:.1%}".replace("%", " %")


def policies(simulate: Simulate) -> str:
    """Compare policies on 1 to 4,096 workers."""
    sizes = (4096, 1, 8, 64, 512)  # the largest first: the processes are then busy until the end
    order = (Policy.COPIES, Policy.CLAIMS, Policy.STATIC)
    keys = [(size, policy) for size in sizes for policy in order]
    scenarios = [replace(BASE, tasks=n, units=30 * n, policy=policy) for n, policy in keys]
    found = dict(zip(keys, means(simulate, scenarios, **FIGURES), strict=True))
    rows = []
    for size in sorted(sizes):
        for policy in Policy:
            one = found[size, policy]
            static, copies = PROTOTYPE.get(size, ("", ""))
            prototype = {Policy.STATIC: static, Policy.COPIES: copies}.get(policy, "")
            rows.append(
                [
                    f"{size:,}",
                    policy,
                    share(one["allocation"]),
                    prototype,
                    share(one["idle"]),
                    share(one["double"]),
                    f"{one['end']:.1f}",
                    f"{one['left']:.1f}",
                    f"{one['peak']:,.0f}",
                ]
            )
    header = ["workers", "policy", "idle, one allocation", "prototype", "idle, array"]
    return markdown([*header, "double work", "end, h", "units left", "calls/s, peak minute"], rows)


def largest(simulate: Simulate) -> str:
    """Vary the units of a worker and the watched strides, on 4,096 workers with equal work."""
    keys = [(units, strides) for units in (60, 30) for strides in (64, 16)]
    scenarios = [
        replace(BASE, tasks=4096, units=4096 * n, unit_seconds=27_000 / n, watched_strides=strides)
        for n, strides in keys
    ]
    rows = [
        [
            str(units),
            str(strides),
            share(one["allocation"]),
            share(one["idle"]),
            share(one["double"]),
            f"{one['end']:.2f}",
            f"{one['left']:.0f}",
            f"{one['peak']:,.0f}",
        ]
        for (units, strides), one in zip(keys, means(simulate, scenarios, **FIGURES), strict=True)
    ]
    header = ["units a worker", "strides watched", "idle, one allocation", "idle, array"]
    return markdown([*header, "double work", "end, h", "units left", "calls/s, peak minute"], rows)


def conditions(simulate: Simulate) -> str:
    """Compare policies under other conditions, on 256 workers."""
    never = math.inf
    given: dict[str, dict[str, Any]] = {
        "as above": {},
        "no failure, no slow node": {"mtbf_hours": never, "slow_share": 0},
        "slow nodes: 3 times": {"slow_factor": 3},
        "slow nodes: 10 times": {"slow_factor": 10},
        "MTBF 12 h": {"mtbf_hours": 12},
        "queue 2 h": {"queue_seconds": 7200},
        "lost for good": {"requeues": 0},
        "lost for good, MTBF 480 h": {"requeues": 0, "mtbf_hours": 480},
        "preempted every 4 h, 60 s": {"preempt_hours": 4},
        "preempted every 4 h, 900 s": {"preempt_hours": 4, "lead_seconds": 900},
        "limit 4 h, 60 s": {"limit_hours": 4},
        "limit 4 h, 900 s": {"limit_hours": 4, "lead_seconds": 900},
    }
    keys = [(name, policy) for name in given for policy in Policy]
    run = replace(BASE, tasks=256, units=30 * 256)
    scenarios = [replace(run, policy=policy, **given[name]) for name, policy in keys]
    found = dict(zip(keys, means(simulate, scenarios, **FIGURES), strict=True))

    def cells(what: str, form: Callable[[float], str], name: str) -> str:
        return " / ".join(form(found[name, policy][what]) for policy in Policy)

    rows = [
        [
            name,
            cells("end", "{:.1f}".format, name),
            cells("allocation", share, name),
            cells("idle", share, name),
            cells("left", "{:.0f}".format, name),
            share(found[name, Policy.COPIES]["double"]),
        ]
        for name in given
    ]
    header = ["condition", "end, h", "idle, one allocation", "idle, array", "units left"]
    return markdown([*header, "double work by copies"], rows)


def watching(simulate: Simulate) -> str:
    """Vary when workers copy, what they watch, and how often they look, on 256 workers."""
    keys = [(64, 15, 3), (64, 15, 2), (64, 15, 1), (64, 60, 3), (16, 15, 3), (4, 15, 3), (1, 15, 3)]
    run = replace(BASE, tasks=256, units=30 * 256)
    scenarios = [
        replace(one, watched_strides=strides, look_seconds=seconds, patience_units=patience)
        for strides, seconds, patience in keys
        for one in (run, replace(run, limit_hours=4))
    ]
    found = iter(means(simulate, scenarios, **FIGURES))
    rows = [
        [
            str(strides),
            str(seconds),
            str(patience),
            *(
                cell
                for one in (next(found), next(found))
                for cell in (f"{one['end']:.2f}", share(one["idle"]), share(one["double"]))
            ),
        ]
        for strides, seconds, patience in keys
    ]
    header = ["strides watched", "s between looks", "copy after unit times"]
    columns = ("end, h", "idle, array", "double work")
    return markdown([*header, *columns, *(f"limit 4 h: {name}" for name in columns)], rows)


def tasks(simulate: Simulate) -> str:
    """Vary the number of tasks of four workers for waits in the queue; one run of 1,365 hours."""
    run = replace(BASE, ranks=4, units=8192, unit_seconds=600, mtbf_hours=480, queue_seconds=0)
    waits: dict[str, dict[str, Any]] = {
        "none": {},
        "10 min each": {"queue_seconds": 600},
        "1 h each": {"queue_seconds": 3600},
        "4 h each": {"queue_seconds": 4 * 3600},
        "a start a minute": {"gap_seconds": 60},
        "a start in 5 min": {"gap_seconds": 300},
    }
    numbers = (8, 32, 128, 256)
    keys = [(wait, number) for wait in waits for number in numbers]
    scenarios = [replace(run, tasks=number, **waits[wait]) for wait, number in keys]
    found = dict(zip(keys, means(simulate, scenarios, **FIGURES), strict=True))

    def cell(wait: str, number: int) -> str:
        one = found[wait, number]
        return f"{one['end']:.1f} h, {one['overhead']:,.0f}"

    header = ["queue", *(f"{n} tasks, {run.units // 4 // n} units a worker" for n in numbers)]
    return markdown(header, [[wait, *(cell(wait, number) for number in numbers)] for wait in waits])


def unit_sizes(simulate: Simulate) -> str:
    """Vary the units of a worker, for runs of 8 hours and of half an hour."""
    fixed = 1.0  # seconds a unit, beyond its rows
    keys = [(hours, units) for hours in (8, 0.5) for units in (8, 16, 32, 64, 128)]
    scenarios = [
        replace(BASE, tasks=256, units=256 * n, unit_seconds=3600 * hours / n + fixed)
        for hours, n in keys
    ]
    scenarios = [
        replace(one, queue_seconds=60) if hours < 1 else one
        for one, (hours, _) in zip(scenarios, keys, strict=True)
    ]
    rows = [
        [
            f"{hours:g} h",
            str(units),
            f"{60 * hours / units:.1f}",
            f"{one['end']:.2f}",
            share(one["allocation"]),
            share(one["idle"]),
            share(one["double"]),
            share(one["cut"]),
            f"{one['peak']:,.0f}",
        ]
        for (hours, units), one in zip(keys, means(simulate, scenarios, **FIGURES), strict=True)
    ]
    header = ["work of a worker", "units", "min a unit", "end, h", "idle, one allocation"]
    return markdown(
        [*header, "idle, array", "double work", "cut off", "calls/s, peak minute"], rows
    )


TABLES: Final[Mapping[str, Callable[[Simulate], str]]] = {
    "Policies": policies,
    "4,096 workers": largest,
    "Do copies pay?": conditions,
    "When and what to copy": watching,
    "How many tasks": tasks,
    "How many units": unit_sizes,
}
