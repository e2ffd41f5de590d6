"""The byte-pair encoding of bases, learned from training windows."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

__all__ = ["learn_vocabulary"]

_SPECIAL = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
"""In the order of the published vocabulary: their ids are 0 to 4."""

_LONGEST = 8
"""Maximum bases of a token; longer tokens are too rare to learn."""


def learn_vocabulary(windows: Iterable[bytes], size: int, path: Path) -> dict[str, int]:
    """Learn `size` tokens, write tokenizer.json for DNABERT-S's loader, return the ids."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))  # noqa: S106 - a token of text
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=_SPECIAL,
        initial_alphabet=list("ACGT"),
        max_token_length=_LONGEST,
        show_progress=False,
    )
    known = (window.decode() for window in windows if not window.strip(b"ACGT"))
    tokenizer.train_from_iterator(known, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(path))
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    return vocabulary
