"""Compiles virnucpro/compiled/*.c for wheels and editable installs, where possible."""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from hashlib import sha256
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("virnucpro/compiled")
FLAGS = ("-O3", "-fPIC", "-shared", "-ffp-contract=off", "-fno-trapping-math")


class CompileHook(BuildHookInterface):
    """Adds the library to a wheel, which is then of this platform instead of any."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless there is no compiler."""
        if self.target_name != "wheel":
            return
        folder = Path(self.root) / FOLDER
        if compiled(folder) and version != "editable":
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform_tag()}"
            build_data["artifacts"].append(str(FOLDER / "functions.shared"))


def platform_tag() -> str:
    """Return the platforms of the library: it uses functions of the oldest C libraries alone."""
    if platform.libc_ver()[0] == "glibc":
        return f"manylinux_2_17_{platform.machine()}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def compiled(folder: Path) -> bool:
    """Compile the C files of a folder to functions.shared; return whether this succeeded."""
    command = shlex.split(os.environ.get("CC", "cc"))
    files, library = sorted(folder.glob("*.[ch]")), folder / "functions.shared"
    if shutil.which(command[0]) is None:
        print(f"no C compiler ({command[0]}): virnucpro is installed without compiled functions")
        return False
    sources = [str(path) for path in files if path.suffix == ".c"]
    temporary = library.with_name(f"{library.name}{os.getpid()}")
    command += [*FLAGS, "-o", str(temporary), *sources, "-lm"]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        print(result.stderr, "virnucpro is installed without compiled functions", file=sys.stderr)
        return False
    content = temporary.read_bytes()
    mark = sha256(b"".join((content, *(path.read_bytes() for path in files)))).digest()
    temporary.write_bytes(content + mark)  # see library_mark in virnucpro/compiled
    temporary.replace(library)
    return True
