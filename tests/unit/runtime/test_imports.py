"""Imports that the collector keeps off."""

import gc

import pytest

from virnucpro.runtime.imports import import_ahead, uncollected


@pytest.fixture
def thawed():
    """Leave nothing out of the collector's sight."""
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_what_is_made_is_not_collected_now_or_later(thawed):
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 1000


def test_a_collector_that_was_off_stays_off(thawed):
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_it_is_on_again_after_an_import_that_failed(thawed):
    with pytest.raises(ModuleNotFoundError):
        import_ahead(["no_such_module_of_tests"])
    assert gc.isenabled()


def test_what_is_there_already_costs_nothing(thawed):
    import_ahead(["gc", "sys"])
    assert gc.get_freeze_count() == 0
