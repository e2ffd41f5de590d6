"""Folds by group, and by cluster of near relatives."""

import numpy as np
import pytest

from virnucpro.lab.training.genomes import GROUPS, RELATIVES, Genome, assign_folds, near_relatives

LETTERS = np.frombuffer(b"ACGT", np.uint8)


def genome(name, group, bases, kingdom="virus"):
    return Genome(name, kingdom, group, kingdom, (bases.tobytes(),), (name,))


@pytest.fixture(scope="module")
def genomes():
    """Eight families of four species; of each species two strains with 3 % other bases."""
    dice = np.random.default_rng(1)
    found = []
    for species in range(32):
        bases = dice.choice(LETTERS, 6_000)
        for strain in range(2):
            own = bases.copy()
            places = dice.random(len(own)) < 0.015
            own[places] = dice.choice(LETTERS, int(places.sum()))
            found.append(genome(f"s{species}_{strain}", f"family{species % 8}", own))
    hosts = [dice.choice(LETTERS, 6_000) for _ in range(12)]
    found += [genome(f"h{i}", f"genus{i // 2}", one, "bacteria") for i, one in enumerate(hosts)]
    return found


def test_strains_of_a_species_are_near_relatives_and_hosts_stay_with_their_genus(genomes):
    units = near_relatives(genomes)
    for first, second in zip(units[:64:2], units[1:64:2], strict=True):
        assert first == second
    assert len(set(units[:64])) == 32
    assert units[64:] == [genome.group for genome in genomes[64:]]


def test_folds_keep_families_or_only_species_together(genomes):
    found = assign_folds(genomes, 5, 1)
    for scheme, unit in ((GROUPS, [one.group for one in genomes]), (RELATIVES, None)):
        units = unit or near_relatives(genomes)
        fold_of = {}
        for name, one in zip(units, found, strict=True):
            assert fold_of.setdefault(name, one.folds[scheme]) == one.folds[scheme]
    families = {}
    for one in found[:64]:
        families.setdefault(one.group, set()).add(one.folds[RELATIVES])
    assert np.mean([len(folds) for folds in families.values()]) > 2


def test_viruses_that_are_all_alike_are_divided_by_group():
    dice = np.random.default_rng(2)
    bases = dice.choice(LETTERS, 3_000)
    alike = [genome(f"v{i}", f"family{i}", bases) for i in range(6)]
    alike += [
        genome(f"h{i}", f"genus{i}", dice.choice(LETTERS, 3_000), "bacteria") for i in range(6)
    ]
    for one in assign_folds(alike, 5, 1):
        assert one.folds[GROUPS] == one.folds[RELATIVES]
