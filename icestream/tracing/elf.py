"""A shared object of one exported thread-local pointer, written without a compiler.

Contents (System V ABI, "Object Files" and "Dynamic Linking"; ELF Handling for Thread-Local Storage):

    PT_LOAD R-X  ELF header, program headers, .hash, .dynsym, .dynstr, .rela.dyn, one return instruction
    PT_LOAD RW-  .dynamic, .got: the two words of the TLS descriptor
    PT_TLS       8 bytes, zero at the start of every thread
    PT_DYNAMIC, PT_GNU_STACK RW-

The TLSDESC relocation makes the dynamic linker fill the descriptor as it loads the object; when the variable is in
static TLS, the second word is its distance from the thread pointer, the same for every thread. That word is what a
profiler reads. Section headers (.dynsym, .dynstr, .rela.dyn and their kin) are there for tools that use them.
"""

import struct

SYMBOL = "otel_thread_ctx_v1"
_PAGE = 0x10000  # the largest page of aarch64: the two segments never share one

_MACHINES = {"x86_64": (62, 36, b"\xc3"), "aarch64": (183, 1031, b"\xc0\x03\x5f\xd6")}
"""ELF machine, number of the TLSDESC relocation, code of `ret`."""

_EHDR, _PHDR, _SHDR = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ"), struct.Struct("<IIQQQQIIQQ")
_SYM, _RELA, _DYN = struct.Struct("<IBBHQQ"), struct.Struct("<QQq"), struct.Struct("<QQ")
_LOAD, _DYNAMIC, _TLS, _GNU_STACK = 1, 2, 7, 0x6474E551
_R, _W, _X = 4, 2, 1


def shared_object(machine: str, tls_size: int = 8) -> tuple[bytes, int]:
    """Returns the file, and the address of the TLS descriptor in it (relative to where it is loaded).

    `machine` is what `platform.machine()` says. Raises ValueError for a machine other than x86_64 and aarch64.
    """
    if machine not in _MACHINES:
        raise ValueError(f"no thread-local descriptors are known for {machine}")
    number, relocation, code = _MACHINES[machine]
    names = f"\0{SYMBOL}\0libotel_thread_ctx.so\0".encode()
    soname = names.index(b"libotel")

    text = bytearray(_EHDR.size + 5 * _PHDR.size)
    hash_at = _append(text, struct.pack("<IIIII", 1, 2, 1, 0, 0))
    symbols_at = _append(text, bytes(_SYM.size) + _SYM.pack(1, 1 << 4 | 6, 0, 9, 0, 8))  # global, TLS, section .tbss
    names_at = _append(text, names)
    dynamic_at = _PAGE
    descriptor_at = dynamic_at + 10 * _DYN.size
    relocations_at = _append(text, _RELA.pack(descriptor_at, 1 << 32 | relocation, 0))
    code_at = _append(text, code)

    dynamic = b"".join(
        _DYN.pack(tag, value)
        for tag, value in (
            (14, soname), (4, hash_at), (5, names_at), (6, symbols_at), (10, len(names)), (11, _SYM.size),
            (7, relocations_at), (8, _RELA.size), (9, _RELA.size), (0, 0),
        )
    )  # fmt: skip
    data = dynamic + bytes(16)
    text[_EHDR.size : _EHDR.size + 5 * _PHDR.size] = b"".join(
        (
            _PHDR.pack(_LOAD, _R | _X, 0, 0, 0, len(text), len(text), _PAGE),
            _PHDR.pack(_LOAD, _R | _W, _PAGE, _PAGE, _PAGE, len(data), len(data), _PAGE),
            _PHDR.pack(_DYNAMIC, _R | _W, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8),
            _PHDR.pack(_TLS, _R, descriptor_at, descriptor_at, descriptor_at, 0, tls_size, 8),
            _PHDR.pack(_GNU_STACK, _R | _W, 0, 0, 0, 0, 0, 16),
        )
    )
    sections = (  # name, type, flags, address, size, link, info, alignment, entry size
        ("", 0, 0, 0, 0, 0, 0, 0, 0),
        (".hash", 5, 2, hash_at, 20, 2, 0, 8, 4),
        (".dynsym", 11, 2, symbols_at, 2 * _SYM.size, 3, 1, 8, _SYM.size),
        (".dynstr", 3, 2, names_at, len(names), 0, 0, 1, 0),
        (".rela.dyn", 4, 2, relocations_at, _RELA.size, 2, 0, 8, _RELA.size),
        (".text", 1, 6, code_at, len(code), 0, 0, 4, 0),
        (".dynamic", 6, 3, dynamic_at, len(dynamic), 3, 0, 8, _DYN.size),
        (".got", 1, 3, descriptor_at, 16, 0, 0, 8, 8),
        (".shstrtab", 3, 0, 0, 0, 0, 0, 1, 0),
        (".tbss", 8, 0x403, descriptor_at, tls_size, 0, 0, 8, 0),
    )
    file = bytes(text).ljust(_PAGE, b"\0") + data
    headers, file = _sections(sections, file)
    text_header = _EHDR.pack(
        b"\x7fELF\x02\x01\x01" + bytes(9), 3, number, 1, 0, _EHDR.size, headers, 0,
        _EHDR.size, _PHDR.size, 5, _SHDR.size, len(sections), 8,
    )  # fmt: skip
    return text_header + file[_EHDR.size :], descriptor_at


def _append(text: bytearray, data: bytes) -> int:
    """Appends data at the next multiple of 8, and returns its offset in `text`."""
    text += bytes(-len(text) % 8)
    at = len(text)
    text += data
    return at


def _sections(
    sections: tuple[tuple[str, int, int, int, int, int, int, int, int], ...], file: bytes
) -> tuple[int, bytes]:
    """Returns the offset of the section headers, and the file with the sections' names and headers added."""
    names = b"".join(name.encode() + b"\0" for name, *_ in sections)
    names_at = len(file)
    file += names + bytes(-len(names) % 8)
    headers_at = len(file)
    for name, kind, flags, address, size, link, info, alignment, entry in sections:
        offset = address
        if name == ".shstrtab":
            offset, size = names_at, len(names)
        at = 0 if not name else names.index(name.encode() + b"\0")
        file += _SHDR.pack(at, kind, flags, address, offset, size, link, info, alignment, entry)
    return headers_at, file
