"""Exceptions of virnucpro.

::

    VirnucproError
    ├── UsageError            an invalid option or argument                      (exit 64)
    ├── InputError            an input file cannot be read, or has the wrong format
    ├── BundleError           a bundle is missing, malformed or damaged
    ├── DeviceError           a requested device is not available
    ├── RunError              a run folder cannot be used by this command
    │   ├── NotARunError      the folder contains no run, or a run of another version
    │   ├── RunExistsError    the folder already contains a run
    │   ├── FingerprintError  a resume would mix results of different inputs or parameters
    │   ├── RunLockedError    another process uses the folder
    │   └── NoLocksError      the file system of the folder has no file locks
    ├── StoreError            a file of a run cannot be read
    │   ├── IndexFormatError  a sequence index is damaged or of an unknown version
    │   └── SegmentError      a file is not a valid segment
    │       └── DamagedSegmentError  a segment is truncated or altered
    ├── WorkerError           a worker process failed
    └── EngineError           a scheduler or another program refused a command

Each message contains the failure, the file or worker, the cause and the next step. Callers add
context with ``add_note``; the command line prints these notes below the message.
"""


class VirnucproError(Exception):
    """Base class of all exceptions of virnucpro."""


class UsageError(VirnucproError):
    """An invalid option or argument."""


class InputError(VirnucproError):
    """An input file cannot be read, or has the wrong format."""


class BundleError(VirnucproError):
    """A bundle is missing, malformed or damaged."""


class DeviceError(VirnucproError):
    """A requested device is not available."""


class RunError(VirnucproError):
    """A run folder cannot be used by this command."""


class NotARunError(RunError):
    """The folder contains no run, or a run of an unknown version."""


class RunExistsError(RunError):
    """The folder already contains a run, and neither ``--resume`` nor ``--force`` was used."""


class FingerprintError(RunError):
    """A resume would mix results of different inputs or parameters."""


class RunLockedError(RunError):
    """Another process uses the run folder."""


class NoLocksError(RunError):
    """The file system of the folder has no file locks."""


class StoreError(VirnucproError):
    """A file of a run cannot be read."""


class IndexFormatError(StoreError):
    """A sequence index is damaged or of an unknown version."""


class SegmentError(StoreError):
    """A file is not a valid segment: unreadable, misnamed, or of an unknown type or version."""


class DamagedSegmentError(SegmentError):
    """A segment file is truncated or altered. Its content is unusable; it may be deleted."""


class WorkerError(VirnucproError):
    """A worker process failed."""


class EngineError(VirnucproError):
    """A scheduler or another program refused a command, or did not answer."""
