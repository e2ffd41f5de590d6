"""What a safetensors file holds, by its header alone: without its numbers, and without torch."""

from pathlib import Path

from safetensors import SafetensorError, safe_open

from virnucpro.encoders.shapes import Shapes
from virnucpro.errors import BundleError

__all__ = ["read_shapes"]


def read_shapes(path: Path) -> Shapes:
    """Give name and shape of every tensor of a file.

    Raises
    ------
    BundleError
        When the file cannot be read, or is no safetensors file.
    """
    try:
        with safe_open(path, framework="numpy") as tensors:
            return {
                name: tuple(tensors.get_slice(name).get_shape())
                for name in tensors.keys()  # noqa: SIM118 - the handle is no mapping
            }
    except (OSError, SafetensorError) as error:
        raise BundleError(
            f"{path}: cannot be read as safetensors ({error}). Get the file again."
        ) from error
