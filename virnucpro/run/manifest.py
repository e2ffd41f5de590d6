"""Read and write run.json, and compare its parameters and inputs with those of a resume."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_origin

from virnucpro.console import described
from virnucpro.durable import write_file
from virnucpro.errors import FingerprintError, NotARunError
from virnucpro.extras import versions_of
from virnucpro.report.extract_options import ExtractOptions
from virnucpro.run.input_check import InputStamp
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.spec import InputFile, json_digest

SCHEMA_VERSION = 9
_REPLACE = (
    "choose another output folder, or replace the run: delete its folder (predict, embed: --force)."
)
_OTHER_PARAMETERS = f"Use the parameters of the run, {_REPLACE}"
_RESTORE = "Restore the file from a copy, or start the run anew in another folder."
_REPORTED = ("torch", "h5py", "numpy", "tokenizers", "safetensors")


@dataclass(frozen=True, slots=True)
class Launch:
    """Record of one launch (start of all ranks) in run.json.

    Durations are in seconds; `started` is a UTC time in ISO 8601. `attempt` is the name of the
    attempt of a task, "" for a process that computed the run alone.
    """

    number: int
    started: str
    devices: Sequence[str]
    n_units: int
    seconds: Mapping[str, float] = field(default_factory=dict)
    ranks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    attempt: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Parameters, inputs and history of a run.

    Attributes
    ----------
    command
        ``predict`` or ``embed``.
    parameters
        Name and value of each parameter that affects results; a value is a str, number, bool or
        None. Devices, ranks and threads are not included: a resume may change them.
    inputs
        The input files with the digests of their content.
    index_fingerprint
        Content hash of names, sequences and index specification.
    units
        Maximum ``rows`` and ``positions`` (residues or bases) per unit. The index and these limits
        determine which rows each unit contains.
    labels, thresholds, encoders
        Class names, thresholds and encoders of the bundle; the outputs need them.
    calibration
        Calibration of the bundle as JSON; None if it has none.
    calls
        Fields of the `CallOptions` that the tables follow; empty for the default rule.
    prevalence
        Fields of the `Prevalence` that the tables follow; None before them, and without a
        calibration or a scored record.
    classes, viral_classes
        Names of the classifier's classes, and of the viral ones; empty for two classes.
    tables_complete
        Whether all outputs are written as `calls`, `extracts`, `formats` and `outputs` say.
    formats
        Formats that are written beside embeddings.h5.
    extracts
        Fields of the `ExtractOptions`; empty for the default.
    bundle_window
        Window of the bundle; the run may have another. None for embed.
    outputs
        Options that choose outputs, by their names, such as ``published_files``.
    input_stamps
        Stamp of each input, by which a resume recognises an unchanged file; None for a pipe.
    summary
        The `summary` of the `Outcome` of the written tables; empty before them.
    files
        Size in bytes of the index and of each written table, by its path in the run folder.
    versions
        Versions of this program and its libraries, as of the last writing.
    """

    command: str
    parameters: Mapping[str, Any]
    inputs: Sequence[InputFile]
    index_fingerprint: str
    counts: Mapping[str, int]
    units: Mapping[str, int]
    labels: Sequence[str]
    thresholds: Mapping[str, float]
    encoders: Sequence[Mapping[str, Any]]
    created: str
    launches: Sequence[Launch] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    calibration: Mapping[str, Any] | None = None
    calls: Mapping[str, Any] = field(default_factory=dict)
    prevalence: Mapping[str, float] | None = None
    classes: Sequence[str] = ()
    viral_classes: Sequence[str] = ()
    tables_complete: bool = False
    extracts: Mapping[str, Any] = field(default_factory=dict)
    formats: Sequence[str] = ()
    outputs: Mapping[str, bool] = field(default_factory=dict)
    input_stamps: Sequence[InputStamp | None] = ()
    bundle_window: int | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Return the SHA-256 of command, index fingerprint, parameters and unit limits."""
        content = {
            "command": self.command,
            "index": self.index_fingerprint,
            "parameters": dict(self.parameters),
            "units": dict(self.units),
        }
        return json_digest(content)

    @property
    def next_launch(self) -> int:
        """Return the number of the next launch of a process that computes the run alone."""
        return 1 + max((one.number for one in self.launches if not one.attempt), default=0)

    @property
    def has_other_window(self) -> bool:
        """Return whether the run has another window than its bundle."""
        return self.bundle_window not in (None, self.parameters.get("window"))

    @property
    def views(self) -> Mapping[str, int]:
        """Return the vector length of each view, in the order in which the vectors are joined."""
        return {encoder["view"]: encoder["dim"] for encoder in self.encoders}

    @property
    def about_vectors(self) -> dict[str, object]:
        """Return the attributes of embeddings.h5 on the pooling; empty for other models."""
        (*_, encoder) = self.encoders
        if "layers" not in encoder:
            return {}
        outputs = self.parameters.get("outputs", "vectors")
        if outputs != "vectors":
            return {"outputs": outputs}
        return {"pooling": self.parameters.get("pooling", "mean"), "layers": encoder["layers"]}

    def as_json(self) -> dict[str, Any]:
        """Return the content of run.json, without its checksum."""
        numbers = {"schema_version": SCHEMA_VERSION, "fingerprint": self.fingerprint}
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        for name in ("inputs", "input_stamps", "launches"):
            own[name] = [entry and _as_dict(entry) for entry in own[name]]
        return numbers | own

    def with_launch(self, launch: Launch) -> "Manifest":
        """Return a copy with `launch`; an earlier entry with the same launch number is replaced."""
        identity = launch.number, launch.attempt
        others = [one for one in self.launches if (one.number, one.attempt) != identity]
        return replace(self, launches=(*others, launch))

    def refuse_other_parameters(
        self, root: RunDirectory, parameters: Mapping[str, Any], *, advice: str = _OTHER_PARAMETERS
    ) -> None:
        """Raise FingerprintError, naming all differences, if `parameters` differ from the run's.

        The name of the bundle may differ: its fingerprint identifies the bundle. The message ends
        with `advice`.
        """
        own = {"command": self.command, **self.parameters}
        same_bundle = own.get("bundle_fingerprint") == parameters.get("bundle_fingerprint")
        differing = [
            f"{name} was {own.get(name)} and is now {parameters.get(name)}"
            for name in sorted({*own, *parameters})
            if own.get(name) != parameters.get(name) and not (name == "bundle" and same_bundle)
        ]
        if differing:
            raise FingerprintError(
                f"{root.root}: cannot resume with other parameters: {'; '.join(differing)}. "
                f"{advice}"
            )

    def refuse_other_inputs(self, root: RunDirectory, inputs: Sequence[InputFile]) -> None:
        """Raise FingerprintError if `inputs` differ in number or content from the run's inputs.

        The message names the first input with other content.
        """
        if len(inputs) != len(self.inputs):
            raise FingerprintError(
                f"{root.root}: the run has {len(self.inputs)} input files, but {len(inputs)} "
                "are given now. Give the same files in the same order."
            )
        for old, new in zip(self.inputs, inputs, strict=True):
            if old.sha256 != new.sha256:
                raise FingerprintError(
                    f"{root.root}: the content of {new.path} differs from the input of the run. "
                    f"The run read {_counts(old)} from {old.path}. The file now has "
                    f"{_counts(new)}. Give the original file, {_REPLACE}"
                )


def _as_dict(entry: InputFile | InputStamp | Launch) -> dict[str, Any]:
    """Return the fields of an entry; `dataclasses.asdict` also copies them, which takes longer."""
    return {name: getattr(entry, name) for name in entry.__slots__}


def _text(content: Mapping[str, Any]) -> str:
    """Return JSON with a line for each entry of the parts of run.json.

    `json.dumps` with an indent takes ten times as long.
    """
    parts = (f"\n  {json.dumps(name)}: {_listed(part)}" for name, part in content.items())
    return f"{{{','.join(parts)}\n}}\n"


def _listed(part: object) -> str:
    if isinstance(part, Mapping):
        entries = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in part.items()]
    elif isinstance(part, list | tuple):
        entries = [*map(json.dumps, part)]
    else:
        return json.dumps(part)
    begin, end = "{}" if isinstance(part, Mapping) else "[]"
    return begin + ",".join(f"\n    {entry}" for entry in entries) + f"\n  {end}"


def _counts(file: InputFile) -> str:
    counts = f"{file.n_records:,} records with {file.n_bases:,} letters"
    return f"{counts} (names and letters: SHA-256 {file.sha256[:12]})"


def write_manifest(run: RunDirectory, manifest: Manifest) -> Manifest:
    """Write run.json atomically; return the manifest with the versions of this program."""
    manifest = replace(manifest, versions=versions_of(*_REPORTED))
    content = manifest.as_json()
    signed = {**content, "sha256": json_digest(content)}
    with write_file(run.run_json) as stream:
        stream.write(_text(signed).encode())
    return manifest


def read_manifest(run: RunDirectory) -> Manifest:
    """Read run.json, as `parse_manifest`; raise RunError if a file of the run is not regular."""
    run.require_regular_files()
    return parse_manifest(run)


def parse_manifest(run: RunDirectory) -> Manifest:
    """Return the content of run.json, which is a regular file or missing.

    Raises
    ------
    NotARunError
        If run.json is missing, damaged, or of an unknown version.
    """
    try:
        content = json.loads(run.run_json.read_bytes())
        if content["schema_version"] != SCHEMA_VERSION:
            raise NotARunError(
                f"{run.root} was made by virnucpro {content['versions']['virnucpro']}, whose run "
                "folders have another format: rerun the command of the run with --force, or use "
                "that version."
            )
        manifest = _parse(content)
    except (FileNotFoundError, NotADirectoryError):
        name = run.run_json.relative_to(run.root)
        raise NotARunError(
            f"{run.root} is not a run of virnucpro: it has no {name}. "
            "Name the output folder of predict or embed, or that of a file of launch."
        ) from None
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        reason = described(error)
        raise NotARunError(f"{run.run_json} cannot be read ({reason}). {_RESTORE}") from error
    if content.pop("sha256", None) != json_digest(content):
        raise NotARunError(
            f"{run.run_json} has been changed since it was written (wrong checksum). {_RESTORE}"
        )
    return manifest


def _parse(content: Mapping[str, Any]) -> Manifest:
    values = {name: content[name] for name in Manifest.__slots__}
    for one in fields(Manifest):
        if get_origin(one.type) is Mapping and not isinstance(values[one.name], dict):
            raise TypeError(f"{one.name} is not an object")
    ExtractOptions(**content["extracts"])
    values["inputs"] = tuple(InputFile(**entry) for entry in content["inputs"])
    values["formats"] = tuple(content["formats"])
    stamps = content["input_stamps"]
    values["input_stamps"] = tuple(stamp and InputStamp(**stamp) for stamp in stamps)
    values["launches"] = tuple(Launch(**entry) for entry in content["launches"])
    return Manifest(**values)


def write_launch(run: RunDirectory, launch: Launch) -> None:
    """Write the record of the launch of an attempt atomically."""
    with write_file(run.launch_json) as stream:
        stream.write(json.dumps(_as_dict(launch)).encode() + b"\n")


def with_attempts(run: RunDirectory, manifest: Manifest) -> Manifest:
    """Return the manifest with the launches of all attempts; damaged records are ignored."""
    for attempt in run.attempts():
        with suppress(OSError, ValueError, TypeError):
            manifest = manifest.with_launch(Launch(**json.loads(attempt.launch_json.read_bytes())))
    return manifest
