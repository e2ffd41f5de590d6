"""Create the job of ``virnucpro predict``: a bundle with a classifier, applied to sequences."""

import os
from dataclasses import fields, replace
from functools import cache
from typing import Any, Final

from virnucpro.bundles.bundle import open_bundle, viral_classes
from virnucpro.bundles.manifest import Bundle, Classifier
from virnucpro.bundles.published import published_names
from virnucpro.classifier.calibration import read_calibration
from virnucpro.classifier.call_options import CallOptions
from virnucpro.classifier.decision import require_applicable
from virnucpro.encoders.registry import require_installed
from virnucpro.errors import UsageError
from virnucpro.option import chosen_outputs, from_options
from virnucpro.report.extract_options import ExtractOptions
from virnucpro.run.job import Inputs, Job, inputs_of
from virnucpro.run.options import PredictOptions
from virnucpro.sequences.input_rules import InputRules
from virnucpro.sequences.items import LEAST_BASES
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import KIND_OF_ITEMS, IndexSpec, Pairs, default_min_length

FALLBACK: Final = "mini"
"""Embedded bundle that scores whole windows."""


@from_options(PredictOptions)
def predict_job(inputs: Inputs, options: PredictOptions) -> Job:
    """Return the job of ``virnucpro predict``; the function `predict` computes it.

    Parameters
    ----------
    inputs
        FASTA or FASTQ files: one path or several; ``-`` for standard input.

    Raises
    ------
    BundleError
        If the bundle is missing or damaged; every file is verified.
    UsageError
        If there is no such bundle, it has no classifier, an option is invalid, or the rule of the
        calls needs a calibration that the bundle lacks.
    """
    given: object = options.bundle
    if not isinstance(given, str | os.PathLike | Bundle):
        raise UsageError(f"invalid bundle {given!r}: give its name or folder")
    opened = given if isinstance(given, Bundle) else open_bundle(os.fspath(given))
    window = options.window
    bundle = opened.name if given is opened else given
    require_installed(opened.encoders, f"bundle {opened.name}")
    if opened.head is None:
        raise UsageError(
            f"{bundle}: has encoders but no classifier. Compute vectors with virnucpro embed "
            f"-e {bundle}/{opened.encoders[0].view}, or give a bundle with a classifier."
        )
    calls = _rule_of(options)
    if calls is not None:
        require_applicable(calls, calibrated=opened.calibration is not None)
    kind = KIND_OF_ITEMS[opened.items]
    if options.published_files and kind == "windows":
        raise UsageError(
            f"--published-files: {bundle} scores whole windows and has no frames, so the published "
            "tables would have no row; leave the option out, or give a bundle of frames, such as "
            "mini-deep"
        )
    second = None if kind == "windows" else _fallback()
    code = options.genetic_code
    if kind == "windows" and code not in {None, opened.genetic_code}:
        raise UsageError(
            f"--genetic-code {code}: {bundle} has learnt code {opened.genetic_code} and reads no "
            "other one; leave the option out"
        )
    if options.genes and code not in {None, opened.genetic_code, 11}:
        raise UsageError(
            f"--genetic-code {code}: --genes finds genes by code 11 only; leave one option out"
        )
    spec = IndexSpec(
        kind=kind,
        alphabet=Alphabet.NUCLEOTIDE,
        window=opened.window if window is None else window,
        tiling=opened.tiling,
        genetic_code=opened.genetic_code if code is None else code,
        fallback=second is not None,
        piece=opened.piece,
        pairs=_pairs_of(options),
    )
    if kind == "windows" and window is not None and window < LEAST_BASES:
        raise UsageError(
            f"--window {window}: {bundle} cannot score windows of fewer than {LEAST_BASES} bases; "
            "give a longer window"
        )
    least = options.min_length
    if least is None:
        fitted = opened.calibration and read_calibration(opened.calibration, opened.path)
        least = default_min_length(spec, fitted.min_bases if fitted else None)
    return Job(
        command="predict",
        inputs=inputs_of(inputs),
        index=replace(spec, min_length=least),
        encoders=opened.encoders,
        model_name=opened.name,
        model=opened.fingerprint,
        options=options,
        head=opened.head,
        classifier={
            "labels": opened.labels,
            "thresholds": opened.thresholds,
            "calibration": opened.calibration,
            "classes": opened.classes,
            "viral_classes": viral_classes(opened),
            "bundle_window": opened.window,
        },
        fallback=second,
        record=opened.record,
        calls=calls,
        extracts=_extracts_of(options),
        rules=InputRules(strict=options.strict, max_record=options.max_record),
        outputs={
            **({"published_files": True} if opened.name in published_names() else {}),
            **chosen_outputs(PredictOptions, options),
        },
    )


def _pairs_of(options: PredictOptions) -> Pairs | None:
    """Return where the mates of paired reads are; None for single sequences."""
    if options.paired and options.interleaved:
        raise UsageError("--paired is for mates in two files, --interleaved for one; give one")
    return "interleaved" if options.interleaved else "files" if options.paired else None


def _rule_of(options: PredictOptions) -> CallOptions | None:
    """Return the rule of the calls; None if no option of it is given."""
    given = {field.name: getattr(options, field.name) for field in fields(CallOptions)}
    rule = {name: value for name, value in given.items() if value is not None}
    return CallOptions(**rule) if rule else None


def _extracts_of(options: PredictOptions) -> dict[str, Any]:
    """Return the given fields of `ExtractOptions`, after a check of their values."""
    calls = options.extract
    calls = calls.split(",") if isinstance(calls, str) else calls
    given: dict[str, Any] = {} if calls is None else {"calls": tuple(calls)}
    if options.compress is not None:
        given["compress"] = bool(options.compress)
    ExtractOptions(**given)
    return given


@cache
def _fallback() -> Classifier:
    bundle = open_bundle(FALLBACK)
    assert bundle.head is not None
    return Classifier(bundle.encoders, bundle.head, bundle.fingerprint)
