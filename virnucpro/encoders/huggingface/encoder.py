"""Load and recognise models in Hugging Face folders; no code of a folder is executed."""

import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import torch

from virnucpro.arrays import IntegerArray
from virnucpro.encoders.base import EncoderSpec, Tokeniser, View
from virnucpro.encoders.config import letter_table, read_json
from virnucpro.encoders.encoder import EqualLengths, PackedBatch
from virnucpro.encoders.huggingface.config import (
    MODEL_TYPES,
    SETTINGS,
    TOKENIZER_FILES,
    HuggingFaceConfig,
    count_weights,
    model_files,
    require_plain,
    rotary_bases,
)
from virnucpro.errors import BundleError

_CLASSES: Final = {"bert": "BertModel", "esm": "EsmModel", "t5": "T5EncoderModel"}
"""Classes of transformers itself: a class named by a folder is never used."""

_LANGUAGE_MODELS: Final = {
    "bert": ("BertForMaskedLM", "cls"),
    "esm": ("EsmForMaskedLM", "lm_head"),
}
"""Classes with the head of a masked language model, and the name of the head."""

_COMPUTED: Final = re.compile(r"^pooler\.|inv_freq$")
"""Tensors that a file may lack: they are unused, or computed from the settings."""

_LOCAL: Final = {"local_files_only": True, "trust_remote_code": False}
_LEAST_FILLED: Final = 0.8
"""Sequences are padded together if the shortest has this share of the longest's tokens."""


def build(
    spec: EncoderSpec, config: HuggingFaceConfig, device: torch.device, dtype: torch.dtype
) -> tuple[Tokeniser, "TransformersStates"]:
    """Return tokeniser and model of a Hugging Face folder.

    Raises
    ------
    BundleError
        If transformers is missing, a file cannot be read, or weights of the model are missing.
    """
    transformers = _transformers(spec.folder)
    tokeniser = LetterTokeniser(
        _tokenizer(transformers, spec.folder), config.alphabet, spaced=config.spaced
    )
    if spec.pooling.outputs == "vectors":
        model = _model(transformers, _CLASSES[config.model_type], spec.folder, dtype).to(device)
        return tokeniser, TransformersStates(model, config.n_layers)
    name, head = _LANGUAGE_MODELS[config.model_type]
    mask = tokeniser.mask
    if mask is None:
        raise BundleError(f"{spec.folder}: the tokenizer has no mask token. Get the folder again.")
    model = _model(transformers, name, spec.folder, dtype).to(device)
    states = TransformersStates(model.base_model, config.n_layers, getattr(model, head), mask)
    return tokeniser, states


def vocabulary(spec: EncoderSpec) -> int:
    """Return the number of tokens of the language model in a folder; 0 if it has none."""
    _, head = _LANGUAGE_MODELS.get(str(spec.config["model_type"]), ("", ""))
    _, shapes = model_files(spec.folder)
    if not head or not any(name.startswith(f"{head}.") for name in shapes):
        return 0
    return int(read_json(spec.folder / SETTINGS)["vocab_size"])


def recognise(path: Path) -> EncoderSpec | None:
    """Return the `EncoderSpec` of a Hugging Face folder; None if it has no known config.json.

    Raises
    ------
    BundleError
        If transformers is missing, the weights are not safetensors, or a file is damaged.
    """
    if not (path / SETTINGS).is_file():
        return None
    settings = read_json(path / SETTINGS)
    model_type = settings.get("model_type")
    if model_type not in MODEL_TYPES:
        return None
    files, shapes = model_files(path)
    require_plain(path, settings, shapes)
    tokenizer = _tokenizer(_transformers(path), path)
    with _as_bundle_error(path):
        alphabet = alphabet_of(tokenizer)
        spaced = needs_spaces(tokenizer, alphabet, path)
        first, last = LetterTokeniser(tokenizer, alphabet, spaced=spaced).special_tokens()
    width, layers = ("d_model", "num_layers") if model_type == "t5" else _BERT_SIZES
    values = {
        "model_type": model_type,
        "width": settings.get(width),
        "n_layers": settings.get(layers),
        "n_parameters": count_weights(shapes),
        "alphabet": alphabet,
        "spaced": spaced,
        "first": first,
        "last": last,
        "longest": max(0, _positions(settings) - first - last),
    }
    return HuggingFaceConfig.read(values, path / SETTINGS).spec(path.resolve().name, path, files)


_BERT_SIZES: Final = ("hidden_size", "num_hidden_layers")


def _positions(settings: dict[str, Any]) -> int:
    """Return the number of tokens for which a model has positions; 0 if they are relative."""
    absolute = settings.get("position_embedding_type", "absolute") == "absolute"
    if settings["model_type"] == "t5" or not absolute:
        return 0
    most = int(settings.get("max_position_embeddings") or 0)
    if settings["model_type"] == "esm":  # positions are counted from the padding token's id plus 1
        return max(0, most - int(settings.get("pad_token_id") or 0) - 1)
    return most


@dataclass(frozen=True)
class TransformersStates:
    """A model of transformers on packed batches; pads sequences of similar length together."""

    model: Any
    n_layers: int
    logits: Callable[[torch.Tensor], torch.Tensor] | None = None
    mask: int = 0

    def states(self, packed: PackedBatch, layers: Sequence[int]) -> list[torch.Tensor]:
        """Return the vectors of all tokens after each layer: (tokens, dim) each, packed."""
        parts = [self._padded(packed, similar, layers) for similar in _similar(packed.groups)]
        return [torch.cat(of_layer) for of_layer in zip(*parts, strict=True)]

    def _padded(
        self, packed: PackedBatch, groups: Sequence[EqualLengths], layers: Sequence[int]
    ) -> list[torch.Tensor]:
        lengths = torch.tensor([group.length for group in groups for _ in range(group.n)])
        places = torch.arange(groups[0].length)
        mask = (places < lengths[:, None]).to(packed.tokens.device)
        ids = torch.full(mask.shape, self.model.config.pad_token_id or 0, device=mask.device)
        ids[mask] = packed.tokens[groups[0].start : groups[-1].stop]
        only_last = tuple(layers) == (self.n_layers,)
        found = self.model(
            input_ids=ids, attention_mask=mask.long(), output_hidden_states=not only_last
        )
        if only_last:
            return [found.last_hidden_state[mask]]
        return [found.hidden_states[layer][mask] for layer in layers]


def _similar(groups: Sequence[EqualLengths]) -> list[list[EqualLengths]]:
    """Join groups of equal lengths, longest first, to parts of similar lengths."""
    longest = 0

    def start(group: EqualLengths) -> int:
        nonlocal longest
        if group.length < _LEAST_FILLED * longest or not longest:
            longest = group.length
        return longest

    return [list(part) for _, part in groupby(groups, start)]


def _model(transformers: ModuleType, name: str, folder: Path, dtype: Any) -> Any:  # noqa: ANN401 - as above
    """Return the model of a class with its weights, ready for inference."""
    options = {"add_pooling_layer": False} if name in {"BertModel", "EsmModel"} else {}
    try:
        model, loading = getattr(transformers, name).from_pretrained(
            folder,
            dtype=dtype,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below
            # a name in config.json may be that of foreign code
            attn_implementation="eager" if name == "T5EncoderModel" else "sdpa",
            **options,
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise BundleError(
            f"{folder}: cannot be loaded ({reason}). Get the folder again."
        ) from error
    missing = sorted(key for key in loading["missing_keys"] if not _COMPUTED.search(key))
    if missing or loading["mismatched_keys"]:
        wrong = missing or [entry[0] for entry in loading["mismatched_keys"]]
        raise BundleError(
            f"{folder}: {len(wrong)} weights are missing or of another size, such as {wrong[0]}. "
            "Get settings and weights of the same model."
        )
    _require_rotary_base(model, folder)
    return model.eval().requires_grad_(requires_grad=False)


def _require_rotary_base(model: torch.nn.Module, folder: Path) -> None:
    """Compare the frequencies of a model, of its file or computed, with config.json."""
    for base in rotary_bases(read_json(folder / SETTINGS), folder):
        for name, found in model.named_buffers():
            if not name.endswith("inv_freq"):
                continue
            pairs = torch.arange(len(found), device=found.device) / len(found)
            if not torch.allclose(found.float(), base**-pairs, rtol=0.02, atol=1e-6):
                raise BundleError(
                    f"{folder}: rope_theta {base} of {SETTINGS} is not the base of the model's "
                    "rotary frequencies. Get settings and weights of the same model, or a newer "
                    "transformers, if the installed one ignores the base."
                )


def _tokenizer(transformers: ModuleType, folder: Path) -> Any:  # noqa: ANN401 - as above
    with _as_bundle_error(folder):
        return transformers.AutoTokenizer.from_pretrained(folder, **_LOCAL)


@contextmanager
def _as_bundle_error(folder: Path) -> Iterator[None]:
    """Raise an error of a tokenizer as BundleError: damaged files raise all kinds of exceptions."""
    try:
        yield
    except BundleError:
        raise
    except Exception as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        files = [name for name in (SETTINGS, *TOKENIZER_FILES) if (folder / name).is_file()]
        needed = "; spiece.model needs sentencepiece: pip install 'virnucpro[transformers]'"
        raise BundleError(
            f"{folder}: the tokenizer cannot be used ({type(error).__name__}: {reason}). Its files "
            f"are {', '.join(files)}. Get them again{needed * ('spiece.model' in files)}."
        ) from error


def _transformers(folder: Path) -> ModuleType:
    """Import and return transformers: offline, without progress bars and advice.

    Raises
    ------
    BundleError
        If the package is not installed.
    """
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        os.environ[name] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import transformers  # noqa: PLC0415 - optional, and its import takes seconds
    except ImportError as error:
        raise BundleError(
            f"{folder}: this model needs the package transformers, which cannot be imported "
            f"({error}). Install it: pip install 'virnucpro[transformers]'."
        ) from error
    messages: Any = transformers.utils.logging
    messages.set_verbosity_error()
    messages.disable_progress_bar()
    return transformers


_PREFIX: Final = "<AA2fold>"
"""Token by which ProstT5 reads amino acids; it also reads structures, as lower-case letters."""

_PROBE: Final[dict[View, str]] = {
    "nucleotide": "ACGTTGCAACGGTCTAACGTGGCA",
    "protein": "LAGVSERTIDPKQNFYMHWC",
}


def alphabet_of(tokenizer: Any) -> View:  # noqa: ANN401 - transformers has no common base with types
    """Return the kind of sequence that a tokenizer reads, from the letters in its vocabulary."""
    entries = (entry.strip("▁#Ġ") for entry in tokenizer.get_vocab())  # special ones have brackets
    letters = {letter for entry in entries if entry.isalpha() for letter in entry.upper()}
    return "protein" if set("LEFIPQ") <= letters else "nucleotide"


def needs_spaces(tokenizer: Any, alphabet: View, source: object) -> bool:  # noqa: ANN401 - as above
    """Return whether a tokenizer reads letters with spaces between them only.

    Raises
    ------
    BundleError
        If a common letter is unknown with and without spaces.
    """
    for spaced in (False, True):
        ids = LetterTokeniser(tokenizer, alphabet, spaced=spaced).inside(_PROBE[alphabet])
        if tokenizer.unk_token_id not in ids:
            return spaced
    raise BundleError(
        f"{source}: the tokenizer reads neither plain {alphabet} sequences nor letters with "
        "spaces. Models of overlapping k-mers are not supported."
    )


class LetterTokeniser:
    """Tokeniser of sequences with special tokens.

    Letters become upper case. Other bytes become X (proteins) or N, and with spaces, as the authors
    of ProtT5 do, U, Z, O and B become X. ProstT5's prefix is added if the vocabulary has it.
    """

    def __init__(self, tokenizer: Any, alphabet: View, *, spaced: bool) -> None:  # noqa: ANN401 - as above
        self._tokenizer = tokenizer
        self._table = letter_table("N")
        if alphabet == "protein":
            self._table = letter_table("X", "UZOB" if spaced else "")
        self._between = " " if spaced else ""
        self._prefix = f"{_PREFIX} " if _PREFIX in tokenizer.get_vocab() else ""
        self._probe = _PROBE[alphabet]

    def __call__(self, sequences: Sequence[bytes]) -> list[IntegerArray]:
        """Return the token ids of each sequence: (n_tokens,) int64 arrays."""
        if not sequences:
            return []
        texts = [self._prefix + self._text(sequence) for sequence in sequences]
        return [np.array(ids, np.int64) for ids in self._tokenizer(texts)["input_ids"]]

    @property
    def mask(self) -> int | None:
        """Return the id of the token that hides another one; None if there is none."""
        found: int | None = self._tokenizer.mask_token_id
        return found

    def inside(self, letters: str) -> list[int]:
        """Return the token ids of a sequence without special tokens."""
        text = self._text(letters.encode())
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def special_tokens(self) -> tuple[int, int]:
        """Return the numbers of special tokens before and after a sequence."""
        inside, (all_ids,) = self.inside(self._probe), self([self._probe.encode()])
        extra = len(all_ids) - len(inside)
        for first in range(extra + 1):
            if all_ids[first : first + len(inside)].tolist() == inside:
                return first, extra - first
        raise BundleError("the tokenizer changes a sequence if it adds special tokens")

    def _text(self, sequence: bytes) -> str:
        return self._between.join(sequence.translate(self._table).decode("ascii"))
