"""What processes on standby import, and worker functions for them."""

import errno
import os
import sys

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


def prepare():
    """Do nothing: it is in a module that was to be imported."""


def prepare_and_say_so():
    print("prepared, on standard output")
    print("and on standard error", file=sys.stderr)


def fail_once():
    """Fail in the first process that comes here."""
    try:
        os.close(os.open(os.environ["FAILED_BEFORE"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    raise OSError(errno.EIO, "Input/output error")


def be_interrupted():
    raise KeyboardInterrupt


def need_what_is_not_there():
    import no_such_module_of_tests  # noqa: F401 - the error is what is wanted


def set_up_and_tell(rank, world_size, results_queue):
    fail_once()
    tell(rank, world_size, results_queue)
