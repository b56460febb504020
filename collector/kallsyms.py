"""Names of the kernel's functions, from /proc/kallsyms: read only when somebody asks for them.

Format: a line a symbol, `ADDRESS TYPE NAME`, and for a module's `\\t[MODULE]`. Code has the types t, T, w and W.
"""

from collections.abc import Iterator
from pathlib import Path

from collector import kernel

_CODE = frozenset(b"tTwW")


class KernelSymbolsError(RuntimeError):
    """The kernel does not tell; the message says what to do."""


def breakpad(build_id: str, root: Path = Path("/")) -> bytes | None:
    """The functions of the running kernel, or of a loaded module, as a Breakpad symbol file that counts addresses as
    the collector does; None where neither has that build ID. Raises KernelSymbolsError."""
    if build_id == kernel.kernel_build_id(root):
        start = kernel.stext(root)
        if not start:
            raise KernelSymbolsError("the kernel hides its symbols: set kernel.kptr_restrict to 0 or 1")
        return _text("kernel", _symbols(root, b"", start, kernel.text_bytes(root)))
    for name, start, size, found in kernel.modules(root):
        if found == build_id:
            return _text(name, _symbols(root, b"[%s]" % name.encode(), start, size))
    return None


def _symbols(root: Path, module: bytes, start: int, size: int) -> Iterator[tuple[int, bytes]]:
    """(offset, name) of the code in [start, start + size)."""
    with open(root / "proc/kallsyms", "rb") as lines:
        for line in lines:
            fields = line.split()
            if len(fields) < 3 or fields[1][0] not in _CODE or (fields[3] if len(fields) > 3 else b"") != module:
                continue
            offset = int(fields[0], 16) - start
            if 0 <= offset < size:
                yield offset, fields[2]


def _text(name: str, symbols: Iterator[tuple[int, bytes]]) -> bytes:
    """Format: docs/symbol_files.md in Breakpad. A PUBLIC record reaches to the next."""
    names: dict[int, bytes] = {}
    for offset, symbol in symbols:
        names.setdefault(offset, symbol)
    header = b"MODULE Linux x86_64 000000000000000000000000000000000 %s\n" % name.encode()
    return header + b"".join(b"PUBLIC %x 0 %s\n" % (offset, names[offset]) for offset in sorted(names))
