"""What to do when the machine, and not the input, is what fails."""

import errno

__all__ = ["advice_for"]

_GO_ON = "then repeat the command with --resume"
_SPACE = f"free space there, {_GO_ON}"
_WRITABLE = "make the folder writable, or choose another one"
_IN_THE_WAY = "a file stands where a folder is needed: choose another output folder"
_ADVICE = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: f"your quota there is used up: free space, {_GO_ON}",
    errno.EFBIG: f"files may not grow that large here: raise the limit (ulimit -f), {_GO_ON}",
    errno.EROFS: _WRITABLE,
    errno.EACCES: _WRITABLE,
    errno.EPERM: _WRITABLE,
    errno.ENOENT: f"see whether the folder is still there and its disk mounted, {_GO_ON}",
    errno.ESTALE: f"the network file system lost it: see that it is mounted, {_GO_ON}",
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EEXIST: _IN_THE_WAY,
    errno.EIO: f"the disk or its connection fails: ask whoever looks after it, {_GO_ON}",
    errno.EMFILE: f"raise the limit of open files (ulimit -n), {_GO_ON}",
    errno.ENFILE: f"the machine has no open file left to give: free some, {_GO_ON}",
    errno.ENOMEM: f"free memory or raise its limit (ulimit -v), {_GO_ON}",
    errno.EAGAIN: f"no process or thread is left to give: raise the limit (ulimit -u), {_GO_ON}",
}


def advice_for(error: OSError | MemoryError) -> str | None:
    """Say what to do next; None where the system's own words are all there is to say."""
    if isinstance(error, MemoryError):
        return _ADVICE[errno.ENOMEM]
    return None if error.errno is None else _ADVICE.get(error.errno)
