"""Public names of a package that are imported at their first use."""

TYPE_CHECKING = False  # importing typing takes most of the time of this import
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def imported_at_first_use(
    package: str, modules: "Mapping[str, str]", home: str = ""
) -> "Callable[[str], object]":
    """Return the function ``__getattr__`` of a package.

    Parameters
    ----------
    package
        Name of the package.
    modules
        Module of each name, in the package `home`; by default in `package` itself.
    """

    def attribute(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import sys  # noqa: PLC0415 - needed only here
        from importlib import import_module  # noqa: PLC0415 - needed only here

        value: object = getattr(import_module(f"{home or package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return attribute
