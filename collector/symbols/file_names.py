"""The kinds of names that a file has for its code, and the SymCache of the best of them."""

import lzma
import mmap
from typing import Any

from symbolic._lowlevel import ffi
from symbolic.debuginfo import Archive

from collector.elf import identity
from collector.elf.reader import Read, bytes_reader, file_reader
from collector.elf.sections import DYNSYM, SYMTAB, content, find, read_sections
from collector.elf.symbols import has_functions
from collector.symbols.function_starts import unnamed_functions
from collector.symbols.functions import functions
from collector.symbols.go.lines import go_symcache, has_go_table
from collector.symbols.name_kinds import DEBUG_INFO, DYNAMIC, LINE_TABLE, NOTHING, STARTS, SYMBOL_TABLE
from collector.symbols.names_jobs import BuiltSymCache, NamesError
from collector.symbols.symcache_ends import with_ends
from collector.symbols.symcache_functions import of_functions
from collector.symbols.symcache_layout import read_layout
from collector.symbols.symcache_names import with_best_names
from icestream.symbols.unnamed_functions import with_unnamed

_MINI_DEBUG_BYTES = 256 << 20
_XZ_BYTES = 128 << 20  # xz -9 needs 65 MB


def best(descriptor: int) -> int:
    """Returns the best kind of names that an open file seems to have (name_kinds.py). Raises OSError."""
    source = file_reader(descriptor)
    sections = read_sections(source)
    if find(sections, ".debug_info") or find(sections, ".zdebug_info"):
        return DEBUG_INFO
    if has_go_table(source, sections):
        return LINE_TABLE
    if has_functions(source, sections, SYMTAB):
        return SYMBOL_TABLE
    within = bytes_reader(_mini_debug(source))
    if has_functions(within, read_sections(within), SYMTAB):
        return SYMBOL_TABLE
    return DYNAMIC if has_functions(source, sections, DYNSYM) else NOTHING


def make(descriptor: int, version: int) -> BuiltSymCache:
    """Returns the names of kind `version`, with a table of the functions without a name; of kind STARTS if all are
    without one. Raises NamesError, OSError, MemoryError; ElfError and symbolic's errors if the file is damaged."""
    load_address = identity.read_file(descriptor).load_address
    sources = [file_reader(descriptor)]
    if version == LINE_TABLE:
        symcache = go_symcache(sources[0], load_address)
        if not symcache:
            raise NamesError("the table of Go's functions is damaged")
        return BuiltSymCache(version, load_address, symcache)
    if within := _mini_debug(sources[0]):
        sources.append(bytes_reader(within))
    symbols = functions(*sources)
    if version == DEBUG_INFO:
        symcache = with_ends(_debug_information(descriptor), symbols, load_address)
        return BuiltSymCache(version, load_address, with_best_names(symcache, symbols, load_address))
    unnamed = unnamed_functions((symbols.start, symbols.end), sources[0], load_address)
    if not len(symbols) and not len(unnamed.start):
        raise NamesError("the file names no function: it is stripped")
    version, named = version if len(symbols) else STARTS, of_functions(symbols, load_address)
    del symbols  # hundreds of MB, in a file with millions of functions
    return BuiltSymCache(version, load_address, with_unnamed(named, unnamed))


def from_text(text: bytes, version: int, load_address: int = 0) -> BuiltSymCache:
    """Returns the SymCache of a Breakpad symbol file."""
    return BuiltSymCache(version, load_address, _symcache(Archive.from_bytes(text)))  # symbolic keeps no copy of `text`


def _debug_information(descriptor: int) -> bytes:
    """The SymCache of an open file. It is mapped, not opened once more by its path in /proc: that takes rights which
    the process that parses files does not have."""
    with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as data, ffi.from_buffer("uint8_t[]", data) as view:
        symcache = _symcache(Archive.from_bytes(view))
    layout = read_layout(symcache)
    if layout is not None and not layout.functions:  # the file was cut since its sections were looked at
        raise NamesError("the debug information names no function")
    return symcache


def _symcache(archive: Archive) -> bytes:
    file = next(archive.iter_objects(), None)
    if file is None:
        raise NamesError("the file holds no object with symbols")
    symcache: Any = file.make_symcache()
    return bytes(symcache.open_stream().read())


def _mini_debug(source: Read) -> bytes:
    """Returns MiniDebugInfo, the symbol table that Fedora and its relatives leave in stripped files: the section
    .gnu_debugdata holds an ELF file as an xz stream, whose .symtab has the functions that .dynsym lacks (gdb's manual).
    b"" if there is none, or it is damaged. Raises OSError."""
    packed = content(source, find(read_sections(source), ".gnu_debugdata"), _MINI_DEBUG_BYTES)
    if not packed:
        return b""
    try:
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_BYTES)
        data = unpacker.decompress(packed, max_length=_MINI_DEBUG_BYTES + 1)
    except (lzma.LZMAError, EOFError):
        return b""
    return data if len(data) <= _MINI_DEBUG_BYTES else b""
