"""MiniDebugInfo: the symbol table that Fedora and its relatives leave in stripped files, compressed.

Format: the section .gnu_debugdata holds an xz stream, and that an ELF file whose .symtab has the functions that .dynsym
has not (gdb's manual, "MiniDebugInfo").
"""

import lzma

from collector.elf.reader import Read
from collector.elf.sections import content, find, read_sections

MAX_BYTES = 256 << 20
_MEMORY_BYTES = 128 << 20  # xz -9 needs 65 MB


def mini_debug(source: Read) -> bytes:
    """The ELF file within; empty where there is none, or it cannot be read. Raises OSError."""
    packed = content(source, find(read_sections(source), ".gnu_debugdata"), MAX_BYTES)
    if not packed:
        return b""
    try:
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY_BYTES)
        data = unpacker.decompress(packed, max_length=MAX_BYTES + 1)
    except (lzma.LZMAError, EOFError):
        return b""
    return data if len(data) <= MAX_BYTES else b""
