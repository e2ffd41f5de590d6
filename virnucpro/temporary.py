"""Names of temporary folders that state their owner, so that those of killed programs are removed.

A name is ``virnucpro-PURPOSE-OWNER-RANDOM``; see `virnucpro.owner`. A folder of another place is
never removed, because TMPDIR may be shared.
"""

import os
import re
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from typing import Final

from virnucpro.owner import has_ended, process_name

_OWNED: Final = re.compile(r"virnucpro-[a-z]+-(\d+-\d+-[0-9a-f]{8})-.+")


def owned_prefix(purpose: str) -> str:
    """Return the beginning of the name of a temporary folder of this process, for `tempfile`.

    The first call of a process removes the folders in TMPDIR whose owners were killed, if they have
    the same user and place.

    Parameters
    ----------
    purpose
        One word of lower-case letters.
    """
    owner = process_name()
    if not owner:  # without /proc
        return f"virnucpro-{purpose}-"
    _remove_leftovers(os.getpid())
    return f"virnucpro-{purpose}-{owner}-"


@cache
def _remove_leftovers(pid: int) -> None:  # noqa: ARG001 - once for each process, also for a fork
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            match = _OWNED.fullmatch(entry.name)
            if match and has_ended(match[1]):
                with suppress(OSError):
                    own = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
                    if own and entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
