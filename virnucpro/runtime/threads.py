"""Variables that say how many threads the numeric libraries of a worker's process may use."""

from collections.abc import Mapping

__all__ = ["thread_variables"]

_NUMBERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
"""Read once by OpenMP, MKL and the tokenisers' thread pool when they start."""

_WAIT_POLICY = "OMP_WAIT_POLICY"
"""Threads that wait for each other sleep. Where they spin, as is the default, two threads of a rank
take five times as long, and keep both cores busy, on a machine with anything else to do."""


def thread_variables(threads: int | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Say what to set in a worker's process before it imports anything numeric.

    Parameters
    ----------
    threads
        How many; None leaves it to the libraries.
    environ
        The parent's environment: a wait policy that stands there is kept.
    """
    variables = {} if threads is None else dict.fromkeys(_NUMBERS, str(threads))
    if _WAIT_POLICY not in environ:
        variables[_WAIT_POLICY] = "PASSIVE"
    return variables
