"""The table of virus families of a bundle."""

from dataclasses import replace

import pytest

from virnucpro.bundles.bundle import open_bundle
from virnucpro.bundles.families import families_table
from virnucpro.errors import UsageError

FIGURES = {
    "Tymoviridae": {"genomes": 35, "unseen": {"500": 0.1, "3000": 0.5}, "relatives": {"3000": 0.9}},
    "Hepadnaviridae": {"genomes": 43, "unseen": {"1250": 0.25}, "relatives": {"1250": 0.755}},
}


@pytest.fixture(scope="module")
def bundle():
    return replace(open_bundle("mini"), metrics={"families": FIGURES})


def test_a_family_is_found_in_any_case(bundle):
    header, row = families_table(bundle, "hepadnaVIRIDAE").split("\n")
    names = [f"{name}_{bases}" for name in ("unseen", "relatives") for bases in (1250, 3000)]
    assert header.split("\t") == ["family", "genomes", *names]
    assert row.split("\t") == ["Hepadnaviridae", "43", "0.25", "-", "0.76", "-"]


def test_all_families_are_sorted(bundle):
    names = [row.split("\t")[0] for row in families_table(bundle, "").split("\n")]
    assert names == ["family", "Hepadnaviridae", "Tymoviridae"]


def test_a_misspelt_family_has_advice(bundle):
    with pytest.raises(UsageError, match=r"no family Tymovirida\. Similar names: Tymoviridae\."):
        families_table(bundle, "Tymovirida")


def test_a_bundle_without_families_says_so(bundle):
    with pytest.raises(UsageError, match="no figures of virus families"):
        families_table(replace(bundle, metrics={}), "Tymoviridae")
