"""``virnucpro predict`` as a function."""

from dataclasses import dataclass

from virnucpro.api.compute import CallerOptions, compute
from virnucpro.api.result import Result
from virnucpro.api.source import Source
from virnucpro.option import from_options
from virnucpro.run.options import PredictOptions
from virnucpro.run.predict_job import predict_job


@dataclass(frozen=True, kw_only=True)
class ClassifyOptions(PredictOptions, CallerOptions):
    """Options of `classify`."""


@from_options(ClassifyOptions)
def classify(source: Source, options: ClassifyOptions) -> Result:
    """Tell which sequences are viral, as ``virnucpro predict`` does.

    The keyword arguments are the options of the command: ``--min-length`` is `min_length`.
    Further ones are `outdir` and `progress`.

    Parameters
    ----------
    source
        Nucleotide sequences: one FASTA or FASTQ file (plain or compressed) or several; an open
        file; pairs ``(name, sequence)`` of an iterable or mapping; records of Biopython, dnaio or
        pysam; a pandas DataFrame (columns id or name, and seq or sequence) or Series; a bare
        sequence. Names are kept exactly; they are not empty and have no white space.

    Returns
    -------
    Result
        Predictions of all sequences. Warnings of the run are issued as `UserWarning`.

    Raises
    ------
    UsageError
        If an option or a pair is invalid, or a script starts workers without the main guard.
    InputError
        If a file cannot be read, or most of its sequences have letters that are not bases.
    BundleError
        If the bundle is damaged.
    DeviceError
        If a device does not exist, or its memory is too small.
    RunError
        If `outdir` has a run already (`RunExistsError`), a run of other inputs or parameters
        (`FingerprintError`), or is in use (`RunLockedError`).
    WorkerError
        If all workers failed.

    Examples
    --------
    >>> import virnucpro
    >>> with virnucpro.classify("contigs.fa") as result:  # doctest: +SKIP
    ...     print(result.viral()[["seq_name", "probability"]])
    """
    return Result(*compute(source, predict_job, PredictOptions, options))
