"""What processes on standby import, and worker functions for them."""

import os

MASK_AT_IMPORT = os.environ.get("CUDA_VISIBLE_DEVICES")


def tell(rank, world_size, results_queue, *args):
    print(f"rank {rank} was here")
    results_queue.put(
        {
            "rank": rank,
            "world_size": world_size,
            "pid": os.getpid(),
            "mask at import": MASK_AT_IMPORT,
            "threads": os.environ.get("OMP_NUM_THREADS"),
            "args": args,
        }
    )


def unlucky(rank, world_size, results_queue):
    import no_such_module_of_tests  # noqa: F401 - the error is what is wanted
