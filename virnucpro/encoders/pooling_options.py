"""The words of the options of pooling; this module imports quickly."""

from typing import Literal, TypeAlias, get_args

Method: TypeAlias = Literal["mean", "cls", "max", "none"]
Long: TypeAlias = Literal["truncate", "chunk-mean", "refuse"]
Outputs: TypeAlias = Literal["vectors", "logits", "pseudo_perplexity"]

METHODS = get_args(Method)
LONG = get_args(Long)
OUTPUTS = get_args(Outputs)
