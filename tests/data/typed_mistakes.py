"""Mistakes that a type checker must find, with a part of its message; no test runs this file."""

import virnucpro
from virnucpro.dispatch import BaseWorker, Dispatcher

result = virnucpro.classify("a.fa", device="cpu")  # error: did you mean "devices"?
result.prediction  # noqa: B018 # error: maybe "predictions"?
virnucpro.clasify("a.fa")  # error: maybe "classify"?
n_viral: str = result.calls["viral"]  # error: expression has type "int"
vectors = virnucpro.embed("a.faa", "mini-deep/protein", pooling="none")
first: list[str] = vectors[0]  # error: expression has type "ndarray
some: list[str] = vectors[1:3]  # error: expression has type "Embeddings"


class Lengths(BaseWorker[str, int]):
    def setup(self, gpu_id: int, seed: int, *, least: int) -> None:  # noqa: ARG002
        self.least = least

    def process(self, data: str) -> int:
        return max(self.least, len(data))


for length in Dispatcher(Lengths, [0]).map(["a"], least=3):
    length.upper()  # error: "int" has no attribute "upper"
