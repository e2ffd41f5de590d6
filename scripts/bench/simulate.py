"""Print tables of simulated runs on 1 to 4,096 workers, and numbers on paper for many nodes.

    python scripts/bench/simulate.py [--measure] [--only TABLE]

The simulation takes less than a minute on two free cores. With --measure, the inputs of the
formulas are measured (needs strace, a minute more), not taken from `simulation.paper.MEASURED`.
"""

import argparse
import time
from concurrent.futures import ProcessPoolExecutor

from simulation.paper import MEASURED, measure, on_paper
from simulation.run import simulate
from simulation.tables import TABLES


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="measure inputs of the formulas")
    parser.add_argument("--only", choices=TABLES, help="one table of simulated runs")
    given = parser.parse_args()
    measured = measure() if given.measure else MEASURED
    titles = [given.only] if given.only else list(TABLES)
    started = time.perf_counter()
    with ProcessPoolExecutor() as pool:
        for title in titles:
            table = TABLES[title](lambda scenarios: pool.map(simulate, scenarios))
            print(f"## {title}\n\n{table}\n")
    took = time.perf_counter() - started
    for title, text in on_paper(measured).items():
        print(f"## {title}\n\n{text}\n")
    print(f"Simulated in {took:.0f} s.")


if __name__ == "__main__":
    main()
