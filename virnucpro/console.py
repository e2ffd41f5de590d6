"""Standard streams whose failures (closed, disk full, no reader) do not stop the program."""

import errno
import io
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters, line separators and marks of the text direction."""
_RISKY: Final = ("=", "+", "-", "@", "#", "track", "browser")
"""Start of a formula in spreadsheet programs, or of a line that is not a row of a BED file."""
_SEQUENCE_FILE: Final = re.compile(
    r"(\.(fa|fasta|fna|ffn|fas|fq|fastq|bam|sam|txt))?(\.(gz|bgz|bz2|xz))?$", re.IGNORECASE
)
_PLAIN: Final = bytes({*range(0x20, 0x7F)} - {ord("%")})
_RISKY_LINE: Final = re.compile(b"\n(?:" + "|".join(map(re.escape, _RISKY)).encode() + b")")
_ENCODED: Final = re.compile(
    rf"{CONTROL.pattern}|%(?=[01][0-9A-F]|25|7F|C2%[89]|E2%8[01])"
    r"|^(?:[=+@#-]|t(?=rack)|b(?=rowser)|%(?=3D|2[BD3]|40|74|62))"
)
_ENCODED_IN_FILE: Final = re.compile(rf"{_ENCODED.pattern}|[\udc80-\udcff]|%(?=[0-9A-Fa-f]{{2}})")
"""For names of files: also bytes that are not UTF-8, and each ``%`` of any code."""
_WITHOUT_READER: Final = {errno.EPIPE, errno.EBADF}


def say(text: str, stream: TextIO | None = None) -> None:
    """Write one line to `stream` (default: standard error); ignore a failed write."""
    target = stream or sys.stderr
    if target is not None:  # Python sets a standard stream to None if it was closed at the start
        with suppress(OSError, ValueError):  # ValueError: the stream was closed later
            target.write(f"[virnucpro] {printable(text)}\n")
            target.flush()


def printable(text: str) -> str:
    r"""Return `text` in a form safe to print: control characters become escapes, as ``\x1b``."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def described(error: BaseException) -> str:
    """Return the type of an exception and its message, if any, in one safe line."""
    return printable(f"{type(error).__name__}: {str(error).strip()}").removesuffix(": ")


def shortened(name: str, longest: int = 200) -> str:
    """Return a name from an input file (such as a sequence's name), safe and short for messages.

    Control characters become escapes. A result of more than `longest` characters is cut at the end.
    """
    text = printable(name[: longest + 1])
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def encoded_name(name: str) -> str:
    """Return a sequence's name as tables contain it; different names stay different.

    Percent-encoded are `CONTROL`, the first character of a name that begins like a formula or a
    comment (``=``, ``+``, ``-``, ``@``, ``#``, ``track``, ``browser``), and each ``%`` that could
    be read as such an encoding.
    """
    # much faster than the regular expression
    if name.isprintable() and "%" not in name and not name.startswith(_RISKY):
        return name
    return _ENCODED.sub(_percent_encoded, name)


def are_plain(lines: bytes) -> bool:
    """Return whether names, each after a line feed, are ASCII that `encoded_name` does not change.

    A name with ``%`` is not plain. Much faster for many names than `encoded_name`.
    """
    return not (lines.translate(None, _PLAIN).strip(b"\n") or _RISKY_LINE.search(lines))


def encoded_names(lines: bytes) -> list[str]:
    """Return the `encoded_name` of each of the names, in UTF-8 and each after a line feed."""
    names = lines.decode().split("\n")[1:]
    return names if are_plain(lines) else list(map(encoded_name, names))


def encoded_file_name(name: str) -> str:
    """Return a file's name or path as all outputs contain it; different names stay different.

    As `encoded_name`; bytes that are not UTF-8, and each ``%`` before two hexadecimal digits, are
    percent-encoded as well. Encode a name once.
    """
    return _ENCODED_IN_FILE.sub(_percent_encoded, name)


def sample_names(files: Sequence[str]) -> list[str]:
    """Return different names for files with different paths; each is the beginning of an id.

    A name is the path below the common folder, without ``.fa.gz`` and the like, with ``_`` for
    ``/``. If such names are equal, they keep ``.fa.gz``. White space and ``|`` are percent-encoded,
    and ``/`` as well if names with ``_`` are equal.
    """
    prefix = os.path.commonprefix(files)  # noqa: RUF071 - cut at its last /
    paths = [file[prefix.rfind("/") + 1 :] for file in files]
    stems = [_SEQUENCE_FILE.sub("", path) for path in paths]
    flat = ([name.replace("/", "_") for name in names] for names in (stems, paths))
    names = next((names for names in flat if len({*names}) == len(names)), paths)
    return [re.sub(r"[\s|/]", _percent_encoded, name) for name in names]


def as_word(name: str) -> str:
    """Return a name with percent-encoded white space."""
    return re.sub(r"\s", _percent_encoded, name)


def _percent_encoded(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode(errors="surrogateescape"))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 file`` or ``2,000 files``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def duration(seconds: float) -> str:
    """Return a duration as text, such as ``15 µs``, ``230 ms``, ``2.5 s`` or ``2.5 h``."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    if seconds >= 1 or seconds == 0:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.001 else f"{seconds * 1e6:.0f} µs"


def output_failure() -> str:
    """Return why the last write to standard error failed, such as ``standard error: Broken pipe``.

    Returns "" if the write succeeded, or if the process did not call `protect_standard_streams`.
    """
    raw = getattr(getattr(sys.stderr, "buffer", None), "raw", None)
    return f"standard error: {raw.failure}" if isinstance(raw, _Output) and raw.failure else ""


def protect_standard_streams(*, strict: bool = True) -> None:
    """Replace standard output and standard error so that failed writes do not stop the process.

    A failed write to standard error is ignored. A failed write to standard output is ignored if
    the stream has no reader (broken pipe, closed stream). Other failures on standard output, such
    as a full disk, are raised once. If file descriptor 0, 1 or 2 is closed, it is opened on
    /dev/null, so that no file opened later gets this number.

    Parameters
    ----------
    strict
        True: raise these other failures on standard output. False: ignore all failures.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # `open` returns the lowest free number: this one. Read-only, so that writes fail.
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)  # noqa: FBT003 - its signature
    sys.stdout = _text_stream(sys.stdout, _Output(1, strict=strict))
    sys.stderr = _text_stream(sys.stderr, _Output(2, strict=False))


class _Output(io.FileIO):
    """Raw file of a standard stream; it stores the error of a failed write.

    Parameters
    ----------
    strict
        If True, the first failed write raises its error. A broken pipe or a closed stream raises
        no error.

    Attributes
    ----------
    failure
        Error of the last write, such as ``Broken pipe``; "" if the write succeeded.
    """

    def __init__(self, descriptor: int, *, strict: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._strict = strict
        self.failure = ""

    def write(self, data: "ReadableBuffer", /) -> int:
        size = memoryview(data).nbytes
        try:
            written = super().write(data) or size  # None: the pipe is full and non-blocking
        except OSError as error:
            first = not self.failure
            self.failure = "closed" if error.errno == errno.EBADF else str(error.strerror)
            if self._strict and first and error.errno not in _WITHOUT_READER:
                raise OSError(error.errno, error.strerror, "standard output") from None
            return size
        self.failure = ""
        return written


def _text_stream(former: TextIO | None, raw: _Output) -> TextIO:
    """Return a text stream that writes to `raw`, with encoding and line buffering of `former`.

    If `former` is None, the encoding is UTF-8.
    """
    if former is None:
        return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace")
    each_line = getattr(former, "line_buffering", False) or getattr(former, "write_through", False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), former.encoding, former.errors, line_buffering=each_line
    )
