"""What code without a name is called: `module+0xaddress`, with the address where its function begins if that is known;
where it is not, `[module]` is all of it.

A symbol file has a table of where functions without a name begin (icestream/symbols/unnamed_functions.py). Older symbol
files have a name for each, `+0xaddress`. Neither says how the file is called: its name differs from host to host.
"""

import os.path
import re

STARTS_VERSION = 1
"""The version of a symbol file that has no names at all, only starts of functions."""
TRUNCATED = "[truncated]"
"""The file of what stands for the frames that a collector could not find; its functions say why."""

_UNNAMED = re.compile(r"\+0x[0-9a-f]+")


def unnamed(file: str, address: int) -> str:
    """The name of an address (ELF virtual address) in a mapped file."""
    return f"{_module(file)}+{address:#x}"


def unnamed_code(file: str) -> str:
    """The name of all code in a mapped file that has no name."""
    module = _module(file)
    return module if module.startswith("[") else f"[{module}]"


def in_file(function: str, file: str) -> str:
    """The name of a function of a symbol file, for the mapped file that it is in."""
    return f"{_module(file)}{function}" if _UNNAMED.fullmatch(function) else function


def is_unnamed(name: str, file: str) -> bool:
    """Whether it is what a function of the file without a name is called."""
    module = _module(file)
    return name.startswith(module) and _UNNAMED.fullmatch(name, len(module)) is not None


def _module(file: str) -> str:
    return os.path.basename(file) or "unknown"
