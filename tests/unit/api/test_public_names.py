"""The root package: its names, and what its import costs."""

import importlib
import inspect
import subprocess
import sys

import pytest

import virnucpro
from virnucpro import errors
from virnucpro.pipeline.predict import predict_job

HEAVY = ["numpy", "h5py", "torch", "pandas", "multiprocessing", "typing", "virnucpro.pipeline"]


def test_all_public_names_exist_and_are_listed():
    assert {*errors.__all__, "classify", "embed", "Result"} <= {*virnucpro.__all__}
    assert {*virnucpro.__all__} <= {*dir(virnucpro)}
    assert list(virnucpro.__all__) == sorted(virnucpro.__all__)
    for name in virnucpro.__all__:
        assert getattr(virnucpro, name) is not None
    assert virnucpro.InputError is errors.InputError


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'virnucpro' has no attribute 'clasify'"):
        virnucpro.clasify  # noqa: B018


def test_no_room_has_the_name_of_a_function():
    """The import of a submodule would replace the function."""
    functions = [name for name in virnucpro.__all__ if name.islower() and name[0] != "_"]
    for name in functions:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"virnucpro.{name}")


def test_the_import_is_quick_and_light():
    code = (
        "import sys, time; began = time.perf_counter(); import virnucpro; "
        "print(time.perf_counter() - began); "
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    seconds = []
    for _ in range(3):  # the machine may be busy
        done = subprocess.run(
            [sys.executable, "-Sc", code], capture_output=True, text=True, check=True
        )
        first, loaded = done.stdout.splitlines()
        assert loaded == "[]"
        seconds.append(float(first))
    assert min(seconds) < 0.05


def test_classify_has_all_options_of_predict():
    """The rule of the calls and the chosen sequences are options of their own."""
    parts = {"inputs", "calls", "extracts"}
    options = inspect.signature(virnucpro.classify).parameters
    assert inspect.signature(predict_job).parameters.keys() - options.keys() == parts
