"""Maps and programs by bpf(2) itself (include/uapi/linux/bpf.h, union bpf_attr), without an object file."""

import contextlib
import ctypes
import errno
import os
import platform
import struct
from typing import NamedTuple

LOG_BYTES = 1 << 20

_SYSCALL = {"x86_64": 321, "aarch64": 280}
_MAP_CREATE, _PROG_LOAD, _PROG_GET_NEXT_ID, _PROG_GET_FD_BY_ID, _OBJ_GET_INFO_BY_FD = 0, 5, 11, 13, 15
_PROG_INFO_BYTES = 128  # of struct bpf_prog_info, up to jited_func_lens
_FUNCTIONS_AT = 104  # in it: two numbers of functions, then where to write their addresses and lengths
_MOST_PROGRAMS, _MOST_FUNCTIONS = 20_000, 1024
_NAME_BYTES = 15
_LICENSE = b"GPL"  # some of the helpers are for such programs only


class MapDefinition(NamedTuple):
    """Types and flags by their numbers in linux/bpf.h; sizes in bytes."""

    name: str
    type: int
    key_size: int
    value_size: int
    max_entries: int
    flags: int


class VerifierError(OSError):
    """The verifier refused; `log` is what it said."""

    def __init__(self, code: int, log: str) -> None:
        super().__init__(code, os.strerror(code))
        self.log = log


def create_map(definition: MapDefinition) -> int:
    """A file descriptor. Raises OSError."""
    name, *numbers = definition
    # map_type, key_size, value_size, max_entries, map_flags; inner_map_fd, numa_node; map_name
    return _bpf(_MAP_CREATE, struct.pack("=5IIi16s", *numbers, 0, 0, _name(name)))


def load_program(name: str, program_type: int, instructions: bytes) -> int:
    """A file descriptor. Raises VerifierError or another OSError."""
    code = ctypes.create_string_buffer(instructions, len(instructions))
    try:
        return _load(name, program_type, code, None)
    except OSError as refused:
        log = ctypes.create_string_buffer(LOG_BYTES)
        try:
            return _load(name, program_type, code, log)
        except OSError:
            raise VerifierError(refused.errno or errno.EINVAL, log.value.decode(errors="replace")) from None


def function_sizes() -> dict[int, int]:
    """Returns the size in bytes of each function of the loaded eBPF programs, by address. Needs CAP_SYS_ADMIN."""
    sizes: dict[int, int] = {}
    program = bytes(4)  # its ID
    try:
        for _ in range(_MOST_PROGRAMS):
            after = ctypes.create_string_buffer(program, 12)
            _call(_PROG_GET_NEXT_ID, after)
            program = after.raw[4:8]
            with contextlib.suppress(FileNotFoundError):  # it ended meanwhile
                sizes |= _function_sizes(_bpf(_PROG_GET_FD_BY_ID, program.ljust(12, b"\0")))
    except OSError:  # there are no more, or we may not know
        pass
    return sizes


def _function_sizes(fd: int) -> dict[int, int]:
    """Closes the descriptor. Raises OSError."""
    try:
        starts, lengths = (ctypes.c_uint64 * _MOST_FUNCTIONS)(), (ctypes.c_uint32 * _MOST_FUNCTIONS)()
        info = ctypes.create_string_buffer(_PROG_INFO_BYTES)
        asked = _MOST_FUNCTIONS, _MOST_FUNCTIONS, ctypes.addressof(starts), ctypes.addressof(lengths)
        struct.pack_into("=IIQQ", info, _FUNCTIONS_AT, *asked)
        _bpf(_OBJ_GET_INFO_BY_FD, struct.pack("=IIQ", fd, len(info), ctypes.addressof(info)))
        (count,) = struct.unpack_from("=I", info, _FUNCTIONS_AT)
        return dict(zip(starts[: min(count, _MOST_FUNCTIONS)], lengths, strict=False))
    finally:
        os.close(fd)


def _load(
    name: str, program_type: int, code: ctypes.Array[ctypes.c_char], log: ctypes.Array[ctypes.c_char] | None
) -> int:
    license_text = ctypes.create_string_buffer(_LICENSE)
    log_level, log_size, log_at = (1, len(log), ctypes.addressof(log)) if log else (0, 0, 0)
    # prog_type, insn_cnt; insns, license; log_level, log_size; log_buf; kern_version, prog_flags; prog_name
    head = struct.pack(
        "=IIQQIIQII16s",
        program_type, len(code) // 8, ctypes.addressof(code), ctypes.addressof(license_text),
        log_level, log_size, log_at, 0, 0, _name(name),
    )  # fmt: skip
    return _bpf(_PROG_LOAD, head)


def _bpf(command: int, attributes: bytes) -> int:
    """Returns what the system call does, mostly a file descriptor. Raises OSError."""
    return _call(command, ctypes.create_string_buffer(attributes, len(attributes)))


def _call(command: int, union: ctypes.Array[ctypes.c_char]) -> int:
    """The same; the kernel may write into the union."""
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"bpf(2) on {platform.machine()} is not known here")
    result: int = ctypes.CDLL(None, use_errno=True).syscall(number, command, union, len(union))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _name(name: str) -> bytes:
    return name.encode()[:_NAME_BYTES]
