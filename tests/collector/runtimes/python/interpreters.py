"""The CPython interpreters that are on this machine."""

import functools
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

_SCRIPT = """
import platform
print(platform.python_implementation(), platform.python_version(), open("/proc/self/maps").read())
"""
VERSIONS = ("3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")


class Interpreter(NamedTuple):
    name: str
    path: str
    library: str  # the file with the interpreter: the executable itself, or libpython

    @property
    def minor(self) -> int:
        return int(self.name.split(".")[1])


@functools.cache
def interpreters() -> list[Interpreter]:
    """Those of the distribution and of pyenv, each once."""
    paths = [shutil.which(f"python{version}", path="/usr/bin:/usr/local/bin") for version in VERSIONS]
    paths += sorted(str(path) for path in Path.home().glob(".pyenv/versions/*/bin/python3"))
    found = {}
    for path in filter(None, paths):
        interpreter = _interpreter(path)
        if interpreter is not None:
            found.setdefault(interpreter.library, interpreter)
    return list(found.values())


def _interpreter(path: str) -> Interpreter | None:
    run = subprocess.run([path, "-c", _SCRIPT], capture_output=True, text=True)
    kind, version, maps = [*run.stdout.split(" ", 2), "", "", ""][:3]
    if kind != "CPython" or ".".join(version.split(".")[:2]) not in VERSIONS:
        return None
    libraries = [line.split()[-1] for line in maps.splitlines() if "libpython3." in line]
    return Interpreter(version, path, libraries[0] if libraries else str(Path(path).resolve()))
