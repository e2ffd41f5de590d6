"""The root package: its names, and what its import costs."""

import importlib
import inspect
import sys

import pytest
from programs import run_captured

import virnucpro
from virnucpro import errors
from virnucpro.option import options_of
from virnucpro.run.execution import RunOptions
from virnucpro.run.options import EmbedOptions, PredictOptions

HEAVY = ["numpy", "h5py", "torch", "pandas", "multiprocessing", "typing", "virnucpro.compute"]


def test_all_public_names_exist_and_are_listed():
    public_errors = {name for name, kind in vars(errors).items() if inspect.isclass(kind)}
    assert {*public_errors, "classify", "embed", "Result"} <= {*virnucpro.__all__}
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
        first, loaded = run_captured(sys.executable, "-Sc", code).stdout.splitlines()
        assert loaded == "[]"
        seconds.append(float(first))
    assert min(seconds) < 0.05


@pytest.mark.parametrize(
    ("function", "declared"), [("classify", PredictOptions), ("embed", EmbedOptions)]
)
def test_the_keywords_are_the_options_of_the_command(function, declared):
    public = getattr(virnucpro, function)
    first, *keywords = inspect.signature(public).parameters.values()
    assert first.name == "source"
    own = {"outdir", "progress"}
    expected = options_of(declared).keys() | options_of(RunOptions).keys() | own
    assert {one.name for one in keywords} == expected
    documented = inspect.getdoc(public)
    for name, one in options_of(declared).items():
        negated = "False: " * (inspect.signature(public).parameters[name].default is True)
        assert f"\n{name}\n    {negated}{one.help[:20]}" in documented
    assert "--" not in documented.partition("\nOptions\n---")[2].partition("\n")[2]
    message = rf"^{function}\(\) got an unexpected keyword argument 'wndow'"
    with pytest.raises(TypeError, match=message):
        public("x.fa", "encoder", wndow=3) if function == "embed" else public("x.fa", wndow=3)
