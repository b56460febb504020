"""Maps and programs by bpf(2) itself (include/uapi/linux/bpf.h, union bpf_attr), without an object file."""

import ctypes
import errno
import os
import platform
import struct
from typing import NamedTuple

LOG_BYTES = 1 << 20

_SYSCALL = {"x86_64": 321, "aarch64": 280}
_MAP_CREATE, _PROG_LOAD = 0, 5
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
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"bpf(2) on {platform.machine()} is not known here")
    union = ctypes.create_string_buffer(attributes, len(attributes))
    fd: int = ctypes.CDLL(None, use_errno=True).syscall(number, command, union, len(attributes))
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return fd


def _name(name: str) -> bytes:
    return name.encode()[:_NAME_BYTES]
