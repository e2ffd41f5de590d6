"""A program with three workers that ends in a chosen way.

Called as ``coordinator_parent.py FOLDER WORKER ENDING``.
"""

import os
import sys

import coordinator_workers

from virnucpro.runtime.gpu_coordinator import GPUProcessCoordinator


def main(folder, worker, ending):
    coordinator = GPUProcessCoordinator(3, folder, ["cpu"] * 3)
    coordinator.spawn_workers(getattr(coordinator_workers, worker), ())
    pids = [process.pid for process in coordinator.workers.values()]
    if ending != "at once":
        for _ in pids:
            coordinator.results_queue.get()
    if ending in {"wait", "at once"}:
        try:
            print(*pids, flush=True)
            coordinator.wait_for_completion()
        except KeyboardInterrupt:
            print(*(status.state for status in coordinator.statuses.values()), flush=True)
            coordinator.terminate_all()
            print(*(status.state for status in coordinator.statuses.values()), flush=True)
        return
    print(*pids, flush=True)
    if ending == "raise":
        raise RuntimeError("the parent had enough")
    if ending == "_exit":
        os._exit(5)


if __name__ == "__main__":
    main(*sys.argv[1:])
