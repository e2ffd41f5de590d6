"""Mistakes that a type checker must find; line 5 and the following ones."""

import virnucpro

result = virnucpro.classify("a.fa", device="cpu")
result.prediction  # noqa: B018
virnucpro.clasify("a.fa")
