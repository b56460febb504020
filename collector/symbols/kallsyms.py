"""Names of the kernel's functions, from /proc/kallsyms, which is read only when they are requested.

Format: one line for each symbol, `ADDRESS TYPE NAME`, then `\\t[MODULE]` if it is a module's. Code has the types t, T,
w and W. There are no sizes: a function ends at the next symbol of any type.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from collector import kernel_code
from collector.symbols.code_ranges import SymbolRange
from collector.symbols.code_ranges import breakpad as text

_CODE = frozenset(b"tTwW")
_PAGE = 4096


class KernelSymbolsError(RuntimeError):
    """The kernel hides its symbols; the message says what to do."""


def breakpad(build_id: str, root: Path = Path("/")) -> bytes | None:
    """Returns the functions of the running kernel or of a loaded module as a Breakpad symbol file, with addresses that
    count as the collector's do; None if neither has that build ID. Raises KernelSymbolsError."""
    if build_id == kernel_code.kernel_build_id(root):
        start = kernel_code.stext(root)
        if not start:
            raise KernelSymbolsError("the kernel hides its symbols: set kernel.kptr_restrict to 0 or 1")
        return text(list(_functions(root, b"", start, kernel_code.text_bytes(root))))
    for module in kernel_code.modules(root):
        if module.build_id == build_id:
            return text(list(_functions(root, b"[%s]" % module.name.encode(), module.text, module.size)))
    return None


def _functions(root: Path, module: bytes, start: int, size: int) -> Iterator[SymbolRange]:
    """Yields the functions in [start, start + size), as offsets from `start`."""
    symbols: dict[int, bytes] = {}  # "": no code
    with open(root / "proc/kallsyms", "rb") as lines:
        for line in lines:
            fields = line.split()
            if len(fields) < 3 or (fields[3] if len(fields) > 3 else b"") != module:
                continue
            offset = int(fields[0], 16) - start
            if 0 <= offset < size and not symbols.get(offset):
                symbols[offset] = fields[2] if fields[1][0] in _CODE else b""
    last = max(symbols, default=0)
    # Other sections of a module follow its last function, whose size is unknown: it ends at its page at the latest.
    symbols[min(size, last + _PAGE & -_PAGE) if module else size] = b""
    for (offset, name), (end, _) in pairwise(sorted(symbols.items())):
        if name:
            yield SymbolRange(offset, end, name.decode("utf-8", "replace"))
