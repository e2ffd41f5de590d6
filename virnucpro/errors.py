"""Every error that virnucpro raises on purpose.

::

    VirnucproError
    ├── UsageError            an option or an argument makes no sense            (exit 64)
    ├── InputError            an input file cannot be read, or is not what it should be
    ├── BundleError           a bundle is missing, malformed or damaged
    ├── DeviceError           a device that was asked for is not there
    ├── RunError              a run folder cannot be used as asked
    │   ├── NotARunError      the folder is no run of this program, or of another version's
    │   ├── RunExistsError    the folder holds a run already
    │   ├── FingerprintError  a resume would mix numbers of different inputs or parameters
    │   └── RunLockedError    another process is at work in the folder
    ├── StoreError            what a run wrote cannot be read back
    │   ├── IndexFormatError  a sequence index is damaged or of an unknown version
    │   └── SegmentError      a file is no segment that counts
    │       └── DamagedSegmentError  a segment is torn or flipped
    └── WorkerError           a worker process failed

An error says what is wrong, where, and ends in what to do next. Code on the way up adds context
with ``add_note``; the command line prints the notes below the message.
"""

__all__ = [
    "BundleError",
    "DamagedSegmentError",
    "DeviceError",
    "FingerprintError",
    "IndexFormatError",
    "InputError",
    "NotARunError",
    "RunError",
    "RunExistsError",
    "RunLockedError",
    "SegmentError",
    "StoreError",
    "UsageError",
    "VirnucproError",
    "WorkerError",
]


class VirnucproError(Exception):
    """Base of every error raised on purpose."""


class UsageError(VirnucproError):
    """An option or an argument makes no sense."""


class InputError(VirnucproError):
    """An input file cannot be read, or is not what it should be."""


class BundleError(VirnucproError):
    """A bundle is missing, malformed or damaged."""


class DeviceError(VirnucproError):
    """A device that was asked for is not there."""


class RunError(VirnucproError):
    """A run folder cannot be used as asked."""


class NotARunError(RunError):
    """The folder is no run of this program, or a run of an unknown version."""


class RunExistsError(RunError):
    """The folder holds a run already, and neither ``--resume`` nor ``--force`` was given."""


class FingerprintError(RunError):
    """A resume would mix numbers made from different inputs or with different parameters."""


class RunLockedError(RunError):
    """Another process is at work in the folder."""


class StoreError(VirnucproError):
    """What a run wrote cannot be read back."""


class IndexFormatError(StoreError):
    """A sequence index is damaged or of an unknown version."""


class SegmentError(StoreError):
    """A file is no segment that counts: foreign, misnamed, unreadable, of an unknown version."""


class DamagedSegmentError(SegmentError):
    """A segment is torn or flipped: it holds nothing any more, and may be deleted."""


class WorkerError(VirnucproError):
    """A worker process failed."""
