"""Settings of a model in a Hugging Face folder, and the files of the folder. Without torch."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self

from virnucpro.console import shortened
from virnucpro.encoders.base import View
from virnucpro.encoders.config import MOST_TOKENIZER_BYTES, EncoderConfig, read_json
from virnucpro.encoders.pooling import TokenLayout
from virnucpro.encoders.weights.shapes import Shapes, read_shapes
from virnucpro.errors import BundleError

SETTINGS: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
"""List of the weight files of a model that has several."""

MODEL_TYPES: Final = ("bert", "esm", "t5")
"""Values of ``model_type`` in config.json that are supported."""

TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "spiece.model",
)
_LAYER: Final = re.compile(r"^(?!decoder\.).*?\b(?:layer|block)\.(\d+)\.")
"""Number of a layer in the name of a tensor of an encoder."""
_SIZES: Final = {
    *("hidden_size", "d_model", "num_attention_heads", "num_heads", "d_kv", "intermediate_size"),
    *("d_ff", "vocab_size", "max_position_embeddings", "relative_attention_num_buckets"),
}
"""Settings that are at most the number of weights."""
_UNUSED: Final = ("decoder.", "lm_head.", "cls.")
"""Prefixes of tensors that an encoder does not use."""


@dataclass(frozen=True, slots=True)
class HuggingFaceConfig(EncoderConfig):
    """Settings of a model, from its config.json, its tokenizer and its weights.

    Attributes
    ----------
    model_type
        One of `MODEL_TYPES`.
    width, n_layers, n_parameters
        Length of a vector, number of layers, number of weights of the encoder.
    alphabet
        Kind of sequence, from the letters of the tokenizer.
    spaced
        Whether the tokenizer needs a space between two letters.
    first, last, longest
        As in `TokenLayout`.
    """

    architecture: ClassVar[str] = "huggingface"

    model_type: Literal["bert", "esm", "t5"]
    width: int
    n_layers: int
    n_parameters: int
    alphabet: View
    spaced: bool
    first: int
    last: int
    longest: int

    @classmethod
    def read(cls, settings: Mapping[str, object], source: Path) -> Self:
        """Return the settings as a dataclass after checks; unknown settings are ignored.

        Raises
        ------
        BundleError
            If a setting is missing or invalid.
        """
        values: dict[str, Any] = {field.name: settings.get(field.name) for field in fields(cls)}
        whole = ("width", "n_layers", "n_parameters", "first", "last", "longest")
        if (
            values["model_type"] not in MODEL_TYPES
            or values["alphabet"] not in {"nucleotide", "protein"}
            or type(values["spaced"]) is not bool
            or any(type(values[name]) is not int or values[name] < 0 for name in whole)
            or not values["width"]
        ):
            raise BundleError(f"{source}: invalid settings {values}. Get the folder again.")
        return cls(**values)

    @property
    def view(self) -> View:
        """Kind of sequence that the model reads."""
        return self.alphabet

    @property
    def dim(self) -> int:
        """Number of values in a vector of one layer."""
        return self.width

    @property
    def layout(self) -> TokenLayout:
        """Layers and special tokens; T5 has no token that represents the sequence."""
        has_cls = self.model_type != "t5" and self.first > 0
        return TokenLayout(self.n_layers, self.first, self.last, self.longest, has_cls)

    def tensor_shapes(self) -> Shapes:
        """Return one shape with the number of all weights, from which memory is estimated."""
        return {"weights": (self.n_parameters,)}

    def require_weights(self, found: Shapes, source: Path) -> None:
        """Compare the number of weights in the file `source` with these settings.

        Raises
        ------
        BundleError
            If the numbers differ.
        """
        if (n := count_weights(found)) != self.n_parameters:
            raise BundleError(f"{source}: has {n:,} weights, not {self.n_parameters:,}.")


def count_weights(shapes: Shapes) -> int:
    """Return the number of weights of the encoder in a file."""
    return sum(math.prod(s) for name, s in shapes.items() if not name.startswith(_UNUSED))


def model_files(folder: Path) -> tuple[dict[str, str], Shapes]:
    """Return the name of each file of a model by its role, and the shapes of its tensors.

    Raises
    ------
    BundleError
        If the folder has no weights as safetensors, a file is damaged, or weights are quantised.
    """
    names = [WEIGHTS] if (folder / WEIGHTS).is_file() else []
    files = {"settings": SETTINGS}
    if not names and (folder / INDEX).is_file():
        listed = read_json(folder / INDEX).get("weight_map")
        names = sorted(set(listed.values())) if isinstance(listed, dict) else []
        files["index"] = INDEX
    if not names or any(Path(str(name)).name != name for name in names):
        raise BundleError(
            f"{folder}: has no weights as safetensors ({WEIGHTS}). Files of other formats can "
            "contain code and are not read. Convert them with transformers: "
            "model.save_pretrained(FOLDER)."
        )
    for number, name in enumerate(names):
        files["weights" if number == 0 else f"weights-{number:04d}"] = name
    files |= {name: name for name in TOKENIZER_FILES if (folder / name).is_file()}
    shapes: Shapes = {}
    for name in names:
        shapes |= read_shapes(folder / name, quantised=False)
    return files, shapes


def require_plain(folder: Path, settings: Mapping[str, object], shapes: Shapes) -> None:
    """Check that a folder asks for nothing but a model of the size of its tensors.

    Raises
    ------
    BundleError
        If an entry of the folder is not a file, the weights are quantised, or a number of
        config.json is 0 or does not fit the tensors.
    """
    for entry in folder.iterdir():
        if not (entry.is_file() or entry.is_dir()):
            raise BundleError(f"{entry}: is not a regular file. Remove it.")
        if entry.name in TOKENIZER_FILES and entry.stat().st_size > MOST_TOKENIZER_BYTES:
            raise BundleError(
                f"{entry}: is larger than {MOST_TOKENIZER_BYTES >> 20} MiB. Get the folder again."
            )
    if (tokenizer := folder / "tokenizer.json").is_file():
        refuse_growth(read_json(tokenizer).get("normalizer"), tokenizer)
    source = folder / SETTINGS
    if settings.get("quantization_config") is not None:
        raise BundleError(f"{source}: quantised weights are not supported. Get the original ones.")
    n_layers = len({match[1] for name in shapes if (match := _LAYER.search(name))})
    for name in {"num_hidden_layers", "num_layers"} & settings.keys():
        if settings[name] != n_layers:
            raise BundleError(
                f"{source}: {name} is {shortened(repr(settings[name]))}, but the weights have "
                f"{n_layers} layers. Get settings and weights of the same model."
            )
    for name in _SIZES & settings.keys():
        size, most = settings[name], count_weights(shapes)
        if size is not None and (type(size) is not int or not 0 < size <= most):
            raise BundleError(
                f"{source}: {name} is {shortened(repr(size))}, not a number from 1 to {most:,} "
                "(all weights). Get settings and weights of the same model."
            )


def refuse_growth(normalizer: object, source: Path) -> None:
    """Raise BundleError if a normalizer of tokenizer.json replaces letters by more letters.

    A few replacements in a row would make a short sequence larger than the memory.
    """
    if not isinstance(normalizer, dict):
        return
    for inner in normalizer.get("normalizers") or ():
        refuse_growth(inner, source)
    pattern = normalizer.get("pattern")
    replaced = pattern.get("String", "x") if isinstance(pattern, dict) else "x"
    content = normalizer.get("content", normalizer.get("prepend", ""))
    if len(str(content)) > max(1, len(str(replaced))):
        raise BundleError(
            f"{source}: its normalizer replaces letters by more letters, which no published model "
            "does. Get the file again from its publisher."
        )


def rotary_bases(settings: dict[str, Any], folder: Path) -> set[float]:
    """Return the bases of rotary positions that a config.json names; older files name none.

    Raises
    ------
    BundleError
        If a base is not a positive number.
    """
    places = (settings, settings.get("rope_parameters"))
    found = [
        place["rope_theta"] for place in places if isinstance(place, dict) and "rope_theta" in place
    ]
    for base in found:
        if type(base) not in {int, float} or not 0 < base < math.inf:
            raise BundleError(
                f"{folder / SETTINGS}: invalid rope_theta {base!r}. Get the file again."
            )
    return set(found)
