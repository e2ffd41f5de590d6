"""The options of ``virnucpro predict`` and ``virnucpro embed`` that affect results or outputs.

This module imports quickly, because the command line needs it.
"""

import os
from argparse import ArgumentTypeError
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from virnucpro.classifier.call_options import PRESETS, PresetName
from virnucpro.encoders.pooling_options import LONG, METHODS, OUTPUTS, Long, Method, Outputs
from virnucpro.option import declaration, inner_share, integer_from, like, option, positive, share
from virnucpro.sequences.entries import MAX_RECORD
from virnucpro.store.schema import EmbeddingsDtype

PrecisionChoice: TypeAlias = Literal["auto", "fp32", "fp16", "bf16"]

_OF_BUNDLE = "that of the bundle"


def _prevalence(text: str) -> float | str:
    try:
        return text if text == "auto" else inner_share(text)
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{error}, or auto") from error


def _calls(text: str) -> tuple[str, ...]:
    return () if text == "none" else _names(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _stored_vectors(text: str) -> str:
    if text not in get_args(EmbeddingsDtype):
        raise ArgumentTypeError(
            f"{text!r} is not fp16, fp32 or none; name the input files before this option"
        )
    return text


@dataclass(frozen=True, kw_only=True)
class PredictOptions:
    """Options of ``virnucpro predict`` that affect results or outputs."""

    bundle: str | os.PathLike[str] = option(
        "mini",
        *("-b", "--bundle"),
        metavar="NAME",
        group="model",
        help="encoders and classifier: name (see virnucpro bundle list) or folder",
    )
    precision: PrecisionChoice = option(
        "auto",
        "--precision",
        choices=get_args(PrecisionChoice),
        group="model",
        help="floating-point precision of the encoders; auto: a resumed run keeps its precision; "
        "a new run uses fp16 for encoders of 100 MB or more on a GPU, else fp32",
        in_numbers=True,
    )
    preset: PresetName | None = option(
        None,
        "--preset",
        choices=PRESETS,
        group="calls",
        help="thresholds of the bundle; sensitive finds more viruses, conservative calls fewer "
        "others viral",
        default_text="default; a resumed or rescored run keeps its rule",
    )
    threshold: float | None = option(
        None,
        "--threshold",
        metavar="P",
        parse=share,
        group="calls",
        help="viral from this probability on (from this score, if the bundle has no calibration)",
        default_text="--preset",
    )
    fdr: float | None = option(
        None,
        "--fdr",
        metavar="Q",
        parse=share,
        group="calls",
        help="maximum false discovery rate among the viral calls, from the probabilities of the "
        "run",
        default_text="no limit",
    )
    prevalence: float | Literal["auto"] | None = option(
        None,
        "--prevalence",
        metavar="P",
        parse=_prevalence,
        group="calls",
        help="expected share of viral sequences in the input; auto: estimate it from the scores",
        default_text="auto; a resumed or rescored run keeps a value that was given before",
    )
    extract: Sequence[str] | None = option(
        None,
        "--extract",
        metavar="LIST",
        parse=_calls,
        group="sequences",
        help="calls whose sequences are written, one file each, separated by commas: viral, "
        "ambiguous, non-viral, not_scored; or none",
        default_text="viral (viruses.fasta; .fastq if all inputs are FASTQ), or as in the "
        "resumed run",
    )
    compress: bool | None = option(
        None, "--compress", group="sequences", help="compress these files with gzip"
    )
    window: int | None = option(
        None,
        "--window",
        metavar="BASES",
        parse=positive,
        group="windows",
        help="window length in bases",
        default_text=_OF_BUNDLE,
        in_numbers=True,
    )
    genetic_code: int | None = option(
        None,
        "--genetic-code",
        metavar="N",
        parse=positive,
        group="windows",
        help="genetic code of models that read translated frames: number of the NCBI translation "
        "table",
        default_text=_OF_BUNDLE,
        in_numbers=True,
    )
    min_length: int | None = option(
        None,
        "--min-length",
        metavar="BASES",
        parse=integer_from(0),
        group="inputs",
        help="least length of a sequence in bases; shorter ones get the status too_short",
        default_text="the shortest that the calibration of the bundle can call (mini: 100), a "
        "third of a window without one, and 0 for the published bundles",
        in_numbers=True,
    )
    paired: bool = option(
        False,
        "--paired",
        group="inputs",
        help="the inputs are files of first and second mates in turn (R1.fq R2.fq): two mates are "
        "one sequence with one answer",
        in_numbers=True,
    )
    interleaved: bool = option(
        False,
        "--interleaved",
        group="inputs",
        help="each input has first and second mates in turn: two mates are one sequence with one "
        "answer",
        in_numbers=True,
    )
    strict: bool = option(
        False,
        "--strict",
        group="inputs",
        help="refuse inputs with gaps, invalid letters, or sequences above --max-record",
        default_text="remove gaps; the other sequences have the status invalid_letters or too_long",
    )
    max_record: int = option(
        MAX_RECORD,
        "--max-record",
        metavar="LETTERS",
        parse=positive,
        group="inputs",
        help="maximum letters of a sequence; a longer one has the status too_long and no score, so "
        "that it does not fill the memory",
        in_numbers=True,
    )
    embeddings: EmbeddingsDtype | None = option(
        None,
        "--embeddings",
        metavar="PRECISION",
        parse=_stored_vectors,
        const="fp16",
        group="further outputs",
        help="keep the vectors of all items, and write them to embeddings.h5, at fp16 (without a "
        "value) or fp32",
        default_text="none, or as the resumed run",
        in_numbers=True,
    )
    published_files: bool | None = option(
        None,
        "--published-files",
        group="further outputs",
        help="write the two tables of the published VirNucPro, prediction_results.txt and "
        "prediction_results_highestscore.csv",
        default_text="for the published bundles only",
        is_output=True,
    )
    genes: bool | None = option(
        None,
        "--genes",
        group="further outputs",
        help="write tracks/genes.gff3, the genes (by genetic code 11) of viral sequences and of "
        "provirus candidates",
        is_output=True,
    )


@dataclass(frozen=True, kw_only=True)
class FramesOptions:
    """Options of ``virnucpro frames``."""

    window: int = like(PredictOptions, "window", 500)
    genetic_code: int = like(PredictOptions, "genetic_code", 1)
    strict: bool = like(PredictOptions, "strict")
    max_record: int = like(PredictOptions, "max_record")
    force: bool = option(False, "--force", group="existing run", help="replace existing files")


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """Options of ``virnucpro embed`` that affect results or outputs."""

    encoder: str | os.PathLike[str] = field(
        kw_only=False,
        metadata=declaration(
            *("-e", "--encoder"),
            metavar="NAME",
            group="model",
            help="encoder: BUNDLE/VIEW (mini-deep/protein, mini/nucleotide), fair-esm checkpoint "
            "(esm2_*.pt), DNABERT-S folder, Hugging Face folder (ESM, T5, BERT with safetensors), "
            "or name of another package's encoder",
        ),
    )
    precision: PrecisionChoice = like(PredictOptions, "precision")
    outputs: Outputs = option(
        "vectors",
        "--outputs",
        choices=OUTPUTS,
        group="vectors",
        help="in the place of vectors, of a masked language model: logits of the whole vocabulary "
        "for each token, or the pseudo-perplexity of each sequence (each token is hidden once, in "
        "a forward pass of its own)",
        in_numbers=True,
    )
    pooling: Method = option(
        "mean",
        "--pooling",
        choices=METHODS,
        group="vectors",
        help="vector of a sequence: mean or maximum over its tokens, or the first special token; "
        "none: one vector per token (residue)",
        in_numbers=True,
    )
    layer: int | Sequence[int] = option(
        (),
        "--layer",
        metavar="N",
        parse=int,
        repeated=True,
        group="vectors",
        help="layer of the vectors, 0 (embeddings) to the number of layers, or negative from the "
        "last layer, -1; several layers are joined",
        default_text="-1",
        in_numbers=True,
    )
    max_length: int | None = option(
        None,
        "--max-length",
        metavar="TOKENS",
        parse=positive,
        group="vectors",
        help="maximum tokens (residues for a protein model) of a sequence, without special tokens",
        default_text="no limit but that of the model",
        in_numbers=True,
    )
    long: Long = option(
        "refuse",
        "--long",
        choices=LONG,
        group="vectors",
        help="longer sequences: use their first tokens, use the mean of chunks, or list them in "
        "quarantine.tsv without a vector",
        in_numbers=True,
    )
    embeddings: Literal["fp16", "fp32"] = option(
        "fp16",
        "--embeddings",
        choices=("fp16", "fp32"),
        group="vectors",
        help="floating-point precision of embeddings.h5",
        in_numbers=True,
    )
    format: Sequence[str] | None = option(
        None,
        "--format",
        metavar="LIST",
        parse=_names,
        group="vectors",
        help="further formats of the vectors, separated by commas: npy (with "
        "embeddings.items.tsv), parquet, h5ad, pt (a file per sequence, as esm-extract)",
        default_text="h5, which is always written",
    )
    strict: bool = like(PredictOptions, "strict")
    max_record: int = like(PredictOptions, "max_record")
    force_alphabet: bool = option(
        False,
        "--force-alphabet",
        group="inputs",
        help="accept inputs that look like nucleotides for an encoder of proteins, and the reverse",
        default_text="refuse them",
    )
