"""Environment variables for the threads of a worker's numeric libraries."""

from collections.abc import Mapping

__all__ = ["thread_variables"]

_NUMBERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
"""Read by OpenMP, MKL and the tokenisers' thread pool when they start."""

_WAIT_POLICY = "OMP_WAIT_POLICY"
"""PASSIVE: waiting threads sleep. By default they spin; on a busy machine, two threads of a rank
then take five times as long."""


def thread_variables(threads: int | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to set in a worker's process before its imports.

    Parameters
    ----------
    threads
        Maximum number of threads; None for the libraries' default.
    environ
        The parent's environment; its wait policy, if set, is kept.
    """
    variables = {} if threads is None else dict.fromkeys(_NUMBERS, str(threads))
    if _WAIT_POLICY not in environ:
        variables[_WAIT_POLICY] = "PASSIVE"
    return variables
