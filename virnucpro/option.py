"""Options are declared once, as fields of dataclasses.

The command line, the keyword arguments of functions and the parameters of a run are made from these
fields.
"""

import inspect
import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from virnucpro.machine import bound_cpus

_KEY = "option"
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_P = ParamSpec("_P")
_Self = TypeVar("_Self")
_First = TypeVar("_First")
_Options = TypeVar("_Options")
_Result = TypeVar("_Result")
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class Option:
    """What a field means, and how it is given on the command line.

    An option without `metavar` and `choices` is a switch: its flag stands for the opposite of the
    default.

    Attributes
    ----------
    flags
        Names on the command line.
    help
        Noun phrase, without the default.
    group
        Title of the group of options.
    default_text
        The default in words; None for the value of the default.
    parse
        Converts the text of the command line.
    const
        Value of the flag without a value; None if a value is required.
    repeated
        Whether the flag may be repeated, for several values.
    in_numbers
        Whether the option changes the numbers that are computed. Then it is a parameter in
        run.json: a resume requires the same value, and other machines inherit it.
    is_output
        Whether the switch chooses an output. Then it is one of `outputs` in run.json: a resume
        without it keeps the choice, and other machines follow it.
    """

    flags: tuple[str, ...]
    help: str
    group: str
    default_text: str | None = None
    metavar: str | None = None
    choices: tuple[str, ...] | None = None
    parse: Callable[[str], object] = str
    const: object = None
    repeated: bool = False
    in_numbers: bool = False
    is_output: bool = False


def option(default: object, *flags: str, **about: Any) -> Any:  # noqa: ANN401 - as a field
    """Return the field of an option; `about` are further attributes of `Option`."""
    return field(default=default, metadata=declaration(*flags, **about))


def like(
    declared: type,
    name: str,
    default: object = MISSING,
    **others: Any,  # noqa: ANN401 - attributes of `Option`
) -> Any:  # noqa: ANN401 - see above
    """Return the field of an option that another dataclass has, perhaps with another default.

    `others` are attributes of `Option` that differ.
    """
    [known] = [known for known in fields(declared) if known.name == name]
    about: Option = known.metadata[_KEY]
    if default is MISSING:
        default = known.default
    else:
        others["default_text"] = None
    return field(default=default, metadata={_KEY: replace(about, **others)})


def declaration(*flags: str, **about: Any) -> dict[str, Option]:  # noqa: ANN401 - see above
    """Return the metadata of a field that is an option, for a field without a default."""
    return {_KEY: Option(flags, **about)}


def options_of(declared: type) -> dict[str, Option]:
    """Return the options of a dataclass by the names of their fields."""
    return {
        known.name: known.metadata[_KEY] for known in fields(declared) if _KEY in known.metadata
    }


def defaults_of(declared: type) -> dict[str, Any]:
    """Return the defaults of the fields of a dataclass; `MISSING` for a field without one."""
    return {known.name: known.default for known in fields(declared)}


def inherited(declared: type, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that change numbers, with their values in the parameters of a run."""
    options = options_of(declared).items()
    return {name: parameters[name] for name, about in options if about.in_numbers}


def chosen_outputs(declared: type, options: object) -> dict[str, bool]:
    """Return the switches of outputs that are given, with their values in `options`."""
    names = [name for name, about in options_of(declared).items() if about.is_output]
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def values_of(declared: type, options: object) -> dict[str, Any]:
    """Return the fields of `declared` with their values in `options`, an instance of a subclass."""
    return {known.name: getattr(options, known.name) for known in fields(declared)}


def from_options(
    declared: Callable[_P, _Options],
) -> Callable[[Callable[[_First, _Options], _Result]], Callable[Concatenate[_First, _P], _Result]]:
    """Return a decorator that gives a function the options of a dataclass as keyword arguments.

    The decorated function takes its first argument and an instance of the dataclass. Its callers
    give the first argument and the fields. Signature and documentation list all options.
    """
    return partial(_with_options, declared)


def from_options_of_method(
    declared: Callable[_P, _Options],
) -> Callable[
    [Callable[[_Self, _First, _Options], _Result]],
    Callable[Concatenate[_Self, _First, _P], _Result],
]:
    """Return the decorator of `from_options` for a method with one argument before the options."""
    return partial(_with_options, declared)


def _with_options(made: Callable[..., _Options], function: Callable[..., _Result]) -> Any:  # noqa: ANN401 - see `from_options`
    signature = inspect.signature(function)
    *leading, _ = signature.parameters.values()
    options = inspect.signature(made).parameters.values()
    public = signature.replace(parameters=[*leading, *options])

    @wraps(function)
    def call(*given: Any, **named: Any) -> _Result:  # noqa: ANN401 - bound to the signature
        try:
            bound = public.bind(*given, **named).arguments
        except TypeError as error:
            message = f"{function.__name__}() {error}"
            raise TypeError(message) from None
        return function(*[bound.pop(parameter.name) for parameter in leading], made(**bound))

    vars(call)["__signature__"] = public
    call.__doc__ = f"{inspect.getdoc(function)}\n\n{_documentation(made)}"
    return call


def _documentation(declared: Any) -> str:  # noqa: ANN401 - a dataclass
    """Return the section of a docstring; flags of the command line become keywords."""
    known = options_of(declared)
    defaults = defaults_of(declared)
    keywords = {flag: name for name, about in known.items() for flag in about.flags}
    lines = ["Options", "-------"]
    for name, about in known.items():
        text = _FLAG.sub(
            lambda match: keywords.get(match[0], match[0]), help_text(declared, name, about)
        )
        lines += [name, f"    {'False: ' * (defaults[name] is True)}{text}"]
    return "\n".join(lines)


def help_text(declared: type, name: str, about: Option) -> str:
    """Return the help of an option with its default."""
    default = defaults_of(declared)[name]
    if about.default_text is not None:
        return f"{about.help}; default: {about.default_text}"
    if default is MISSING or default is None or isinstance(default, bool):
        return about.help
    text = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return f"{about.help}; default: {f'{default:g} s' if about.parse is seconds else text}"


def _parser(
    convert: Callable[[str], _Number], accepts: Callable[[_Number], bool], wanted: str
) -> Callable[[str], _Number]:
    """Return a function that parses a number, and refuses values that are not accepted."""

    def parse(text: str) -> _Number:
        with suppress(ValueError):
            if accepts(number := convert(text)):
                return number
        raise ArgumentTypeError(f"{text!r} is not {wanted}")

    return parse


def integer_from(least: int) -> Callable[[str], int]:
    """Return a function that parses a whole number and refuses values below `least`."""
    return _parser(int, lambda number: number >= least, f"a whole number of at least {least}")


positive = integer_from(1)
seconds = _parser(float, lambda number: 0 < number < math.inf, "a number of seconds above 0")
"""Parser of a duration in seconds."""
share = _parser(float, lambda number: 0 <= number <= 1, "a number from 0 to 1")
inner_share = _parser(float, lambda number: 0 < number < 1, "a number between 0 and 1")


def cpu_threads(text: str) -> int:
    """Parse a number of threads; refuse a number above the CPUs, because torch can then abort."""
    number, cpus = positive(text), bound_cpus()
    if number > cpus:
        raise ArgumentTypeError(f"{text} exceeds the {cpus} CPUs of this process")
    return number
