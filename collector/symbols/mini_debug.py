"""MiniDebugInfo: the compressed symbol table that Fedora and its relatives leave in stripped files.

Format: the section .gnu_debugdata holds an ELF file as an xz stream. Its .symtab has the functions that .dynsym lacks
(gdb's manual, "MiniDebugInfo").
"""

import lzma

from collector.elf.reader import Read
from collector.elf.sections import content, find, read_sections

MAX_BYTES = 256 << 20
_MEMORY_BYTES = 128 << 20  # xz -9 needs 65 MB


def mini_debug(source: Read) -> bytes:
    """Returns the ELF file in the section; b"" if there is none, or it is damaged. Raises OSError."""
    packed = content(source, find(read_sections(source), ".gnu_debugdata"), MAX_BYTES)
    if not packed:
        return b""
    try:
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY_BYTES)
        data = unpacker.decompress(packed, max_length=MAX_BYTES + 1)
    except (lzma.LZMAError, EOFError):
        return b""
    return data if len(data) <= MAX_BYTES else b""
