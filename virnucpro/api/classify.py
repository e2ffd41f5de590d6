"""``virnucpro predict`` as a function."""

import os
from collections.abc import Sequence
from typing import Any, Literal

from virnucpro.api.compute import compute
from virnucpro.api.result import Result
from virnucpro.api.source import Source
from virnucpro.classifier.call_options import CallOptions, PresetName
from virnucpro.pipeline.jobs.job import EmbeddingsDtype, Job, PrecisionChoice
from virnucpro.pipeline.predict import predict_job
from virnucpro.report.extract_options import ExtractOptions
from virnucpro.sequences.windows import Tiling

__all__ = ["classify"]


def classify(
    source: Source,
    *,
    bundle: str | os.PathLike[str] = "mini",
    devices: str = "auto",
    outdir: str | os.PathLike[str] | None = None,
    preset: PresetName | None = None,
    threshold: float | None = None,
    fdr: float | None = None,
    prevalence: float | Literal["auto"] | None = None,
    extract: Sequence[str] | None = None,
    compress: bool | None = None,
    window: int | None = None,
    tiling: Tiling | None = None,
    genetic_code: int | None = None,
    precision: PrecisionChoice = "auto",
    embeddings: EmbeddingsDtype | None = None,
    fallback: bool = True,
    min_length: int | None = None,
    strict: bool = False,
    published_files: bool | None = None,
    threads: int | None = None,
    resume: bool = False,
    force: bool = False,
    progress: bool = False,
) -> Result:
    """Tell which sequences are viral, as ``virnucpro predict`` does.

    Parameters
    ----------
    source
        Nucleotide sequences: one FASTA or FASTQ file (plain or compressed), several files, or
        pairs ``(name, sequence)`` of an iterable or mapping. Names of pairs are kept exactly; they
        are not empty and have no white space.
    bundle
        Name or folder of the model: ``mini`` (composition, fast), ``mini-deep`` (language models),
        or an installed bundle.
    devices
        ``auto``: every visible GPU, one process each; without a GPU, one worker in this process.
        ``cpu``: one worker in this process. ``cpu:N``: N processes. ``0,1``: these GPUs. Processes
        need the main guard in a script: ``if __name__ == "__main__":``.
    outdir
        Folder of the run. None: a temporary folder in TMPDIR, removed with the result.
    preset
        Thresholds of the bundle: ``sensitive``, ``default`` or ``conservative``.
    threshold
        Least probability of a viral call, from 0 to 1 (least score, without a calibration).
    fdr
        Maximum expected share of non-viral sequences among the viral calls, from 0 to 1.
    prevalence
        Expected share of viral sequences, between 0 and 1; ``auto`` to estimate it.
    extract
        Calls whose sequences are written into the run folder; None for ``("viral",)``.
    compress
        Whether these files are compressed with gzip.
    window, tiling, genetic_code
        Bases of a window, tiling, and number of the genetic code; None for those of the bundle.
    precision
        Precision of the encoders: ``auto``, ``fp32``, ``fp16`` or ``bf16``.
    embeddings
        Keep the vectors, for `virnucpro.read_embeddings`, at ``fp16`` or ``fp32``; ``none`` to keep
        none. None: as in the resumed run, or ``none``.
    fallback
        Whether windows without an open frame are scored by their composition, if the bundle scores
        frames only.
    min_length
        Least length in bases; shorter sequences are `too_short`. None: a third of a window.
    strict
        True: gaps and invalid letters are errors. False: gaps are removed, and a sequence with
        invalid letters gets the status ``invalid_letters``.
    published_files
        Whether the two tables of the published VirNucPro are written into the run folder; None for
        the published bundles only.
    threads
        CPU threads of all workers together; None for all CPUs of this process.
    resume
        True: resume the run in `outdir`; if it is complete, nothing is computed again.
    force
        True: replace the run in `outdir`.
    progress
        True: print the progress to standard error.

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
    rule: dict[str, Any] = {
        "preset": preset,
        "threshold": threshold,
        "fdr": fdr,
        "prevalence": prevalence,
    }
    rule = {name: value for name, value in rule.items() if value is not None}

    def job_of(inputs: tuple[str, ...]) -> Job:
        chosen = extract is not None or compress is not None
        calls = ("viral",) if extract is None else tuple(extract)
        return predict_job(
            inputs,
            bundle=bundle,
            window=window,
            tiling=tiling,
            genetic_code=genetic_code,
            precision=precision,
            embeddings=embeddings,
            fallback=fallback,
            min_length=min_length,
            strict=strict,
            published_files=published_files,
            calls=CallOptions(**rule) if rule else None,
            extracts=ExtractOptions(calls, bool(compress)) if chosen else None,
        )

    return Result(
        *compute(
            source,
            job_of,
            outdir=outdir,
            devices=devices,
            threads=threads,
            resume=resume,
            force=force,
            progress=progress,
        )
    )
