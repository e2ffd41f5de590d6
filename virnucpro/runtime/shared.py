"""Numbers that a parent and one child share in memory.

The memory has no name in a file system, so no file is left if the processes are killed.
"""

import mmap
import os
from typing import Final

from virnucpro.runtime.process import HandedOver

_SIZE: Final = mmap.PAGESIZE


class SharedNumbers:
    """Numbers in the memory of a parent and one child.

    Parameters
    ----------
    descriptor
        In the parent: None, to allocate the memory. In the child: the file descriptor of this
        memory.

    Attributes
    ----------
    values
        The numbers, at first 0.0. Reading and writing one of them is atomic.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = os.memfd_create("virnucpro-shared") if descriptor is None else descriptor
        os.ftruncate(self._descriptor, _SIZE)
        self._mapping = mmap.mmap(self._descriptor, _SIZE)
        with memoryview(self._mapping) as whole:
            self.values: memoryview[float] = whole.cast("d")
        if descriptor is not None:
            self.close_descriptor()

    @property
    def childs_end(self) -> HandedOver:
        """The file descriptor of the shared memory, for the child process."""
        return HandedOver(self._descriptor)

    def close_descriptor(self) -> None:
        """Close the file descriptor after the start of the child. The memory stays mapped."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def close(self) -> None:
        """Unmap the shared memory from this process."""
        self.close_descriptor()
        self.values.release()
        self._mapping.close()
