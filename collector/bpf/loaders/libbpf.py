"""The loader for kernels with BTF, and the operations on maps that the collector needs, with libbpf through ctypes."""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping
from pathlib import Path

from collector.bpf.loaders.bpf_syscall import MapDefinition
from collector.bpf.loaders.loader import LoadError

BTF = Path("/sys/kernel/btf/vmlinux")
LOG_LINES = 12  # of the verifier's log in an error message; the last lines say what was refused

_PRINT_LEVEL_WARN = 0
_MAP_NUMBERS = ("type", "key_size", "value_size", "max_entries", "map_flags")  # as in MapDefinition
_MAP_INFO_BYTES = 88  # struct bpf_map_info: type, id, key_size, value_size...
_PER_CPU_TYPES = (5, 6, 10)  # BPF_MAP_TYPE_PERCPU_HASH, _PERCPU_ARRAY, _LRU_PERCPU_HASH
_VA_LIST_BYTES = 32  # of aarch64; 24 of x86-64
_PRINT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class LibbpfProgram:
    """A loaded object and one program of it."""

    def __init__(self, library: ctypes.CDLL, handle: int, program: str) -> None:
        self._library, self._handle = library, handle
        self.fd = self.program_fd(program)

    def programs(self) -> list[str]:
        names, program = [], self._library.bpf_object__next_program(self._handle, None)
        while program:
            if self._library.bpf_program__fd(program) >= 0:  # not one that was left out
                names.append(self._library.bpf_program__name(program).decode())
            program = self._library.bpf_object__next_program(self._handle, program)
        return names

    def program_fd(self, name: str) -> int:
        program = self._library.bpf_object__find_program_by_name(self._handle, name.encode())
        if not program:
            raise LoadError(f"the object has no program {name!r}")
        fd = int(self._library.bpf_program__fd(program))
        if fd < 0:
            raise LoadError(f"the program {name!r} was left out when the object was loaded")
        return fd

    def map_fd(self, name: str) -> int:
        map_handle = self._library.bpf_object__find_map_by_name(self._handle, name.encode())
        if not map_handle:
            raise LoadError(f"the object has no map {name!r}")
        return int(self._library.bpf_map__fd(map_handle))

    def close(self) -> None:
        handle, self._handle = self._handle, 0
        if handle:
            self._library.bpf_object__close(handle)


def object_of(source: Path) -> Path:
    """Where the object of a source for this machine is: most are the same for all."""
    own = source.with_name(f"{source.name.partition('.')[0]}.{platform.machine()}.bpf.o")
    return own if own.exists() else source.with_suffix(".o")


class LibbpfLoader:
    def __init__(self, needs_btf: bool = True) -> None:
        """`needs_btf`: whether the object reads fields of the kernel's structures."""
        self._needs_btf = needs_btf

    def load(self, source: Path, program: str, sizes: Mapping[str, int], without: str = "") -> LibbpfProgram:
        path = object_of(source)
        if not path.exists():
            raise LoadError(f"{path} is missing: build it with `make -C {path.parent}`")
        if self._needs_btf and not BTF.exists():
            raise LoadError(f"this kernel has no BTF ({BTF} is missing; CONFIG_DEBUG_INFO_BTF)")
        library = _open_library()
        log: list[str] = []

        def keep(level: int, form: bytes, arguments: int) -> int:
            if level == _PRINT_LEVEL_WARN:
                log.append(_format(form, arguments))
            return 0

        callback = _PRINT(keep)
        previous = library.libbpf_set_print(ctypes.cast(callback, ctypes.c_void_p))
        try:
            return _load(library, path, program, sizes, without, log)
        finally:
            library.libbpf_set_print(previous)


def describe(path: Path) -> tuple[list[MapDefinition], dict[str, int]]:
    """Returns the maps of an object, and the types of its programs by name. Loads nothing. Raises LoadError."""
    library = _open_library()
    previous = library.libbpf_set_print(None)
    handle = library.bpf_object__open_file(str(path).encode(), None)
    library.libbpf_set_print(previous)
    if not handle:
        raise LoadError(_explain(f"{path.name} cannot be read", ctypes.get_errno(), []))
    maps, programs = [], {}
    map_handle = program = None
    while map_handle := library.bpf_object__next_map(handle, map_handle):
        numbers = (getattr(library, f"bpf_map__{name}")(map_handle) for name in _MAP_NUMBERS)
        maps.append(MapDefinition(library.bpf_map__name(map_handle).decode(), *numbers))
    while program := library.bpf_object__next_program(handle, program):
        programs[library.bpf_program__name(program).decode()] = int(library.bpf_program__type(program))
    library.bpf_object__close(handle)
    return maps, programs


class Map:
    """A map of fixed-size keys and values, by file descriptor. Errors are OSError; a size that is not the map's is a
    ValueError, because the kernel would read or write beyond what it is given."""

    def __init__(self, fd: int) -> None:
        self._library, self._fd = _open_library(), fd
        info, size = ctypes.create_string_buffer(_MAP_INFO_BYTES), ctypes.c_uint32(_MAP_INFO_BYTES)
        _check(self._library.bpf_obj_get_info_by_fd(fd, info, ctypes.byref(size)))
        kind, _, self._key_size, self._value_size = struct.unpack_from("=4I", info)
        if kind in _PER_CPU_TYPES:
            self._value_size = -(-self._value_size // 8) * 8 * possible_cpus()

    def _check_sizes(self, key_size: int, value_size: int) -> None:
        if (key_size, value_size) != (self._key_size, self._value_size):
            sizes = f"keys of {self._key_size} and values of {self._value_size} bytes"
            raise ValueError(f"the map has {sizes}, not of {key_size} and {value_size}")

    def update(self, key: bytes, value: bytes) -> None:
        self._check_sizes(len(key), len(value))
        _check(self._library.bpf_map_update_elem(self._fd, key, value, 0))

    def delete(self, key: bytes) -> None:
        """Deletes a key. Does nothing if there is none."""
        self._check_sizes(len(key), self._value_size)
        result = self._library.bpf_map_delete_elem(self._fd, key)
        if result != -errno.ENOENT:
            _check(result)

    def lookup(self, key: bytes, value_size: int) -> bytes | None:
        """Returns the value; None if there is no such key. In a per-CPU map `value_size` is that of all possible CPUs
        together."""
        self._check_sizes(len(key), value_size)
        value = ctypes.create_string_buffer(value_size)
        result = self._library.bpf_map_lookup_elem(self._fd, key, value)
        if result == -errno.ENOENT:
            return None
        _check(result)
        return value.raw

    def values(self, key_size: int, value_size: int, most: int) -> bytes:
        """Returns the values of at most `most` entries, one after the other. Needs Linux 5.6."""
        self._check_sizes(key_size, value_size)
        keys, values = bytearray(most * key_size), bytearray(most * value_size)
        after, count = ctypes.c_uint32(), ctypes.c_uint32(most)
        result = self._library.bpf_map_lookup_batch(
            self._fd, None, ctypes.byref(after), (ctypes.c_char * len(keys)).from_buffer(keys),
            (ctypes.c_char * len(values)).from_buffer(values), ctypes.byref(count), None,
        )  # fmt: skip
        if result != -errno.ENOENT:  # no more entries follow
            _check(result)
        return bytes(memoryview(values)[: count.value * value_size])


def open_raw_tracepoint(name: str, program_fd: int) -> int:
    """Runs the program at that tracepoint until the file descriptor that it returns is closed. Raises OSError."""
    fd = int(_open_library().bpf_raw_tracepoint_open(name.encode(), program_fd))
    _check(fd)
    return fd


def run_stats(program_fd: int) -> dict[str, int]:
    """Returns what the kernel measured of a program (struct bpf_prog_info); 0 unless kernel.bpf_stats_enabled is on."""
    info, size = ctypes.create_string_buffer(256), ctypes.c_uint32(256)
    _check(_open_library().bpf_obj_get_info_by_fd(program_fd, info, ctypes.byref(size)))
    run_time_ns, run_count = struct.unpack_from("=QQ", info, 192)
    return {"run_time_ns": run_time_ns, "run_count": run_count}


def possible_cpus() -> int:
    """Returns how many values an entry of a per-CPU map has."""
    count = int(_open_library().libbpf_num_possible_cpus())
    if count < 0:
        raise OSError(-count, os.strerror(-count))
    return count


def _check(result: int) -> None:
    if result < 0:
        raise OSError(-result, os.strerror(-result))


_library: ctypes.CDLL | None = None


def _open_library() -> ctypes.CDLL:
    global _library
    if _library is None:
        try:
            library = ctypes.CDLL("libbpf.so.1", use_errno=True)
        except OSError as error:
            raise LoadError(f"libbpf 1.0 or newer is missing (Debian, Ubuntu: apt install libbpf1): {error}") from error
        pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        for name, result, *arguments in (
            ("libbpf_set_print", pointer, pointer),
            ("libbpf_num_possible_cpus", number),
            ("bpf_object__open_file", pointer, text, pointer),
            ("bpf_object__load", number, pointer),
            ("bpf_object__close", None, pointer),
            ("bpf_object__find_map_by_name", pointer, pointer, text),
            ("bpf_object__find_program_by_name", pointer, pointer, text),
            ("bpf_object__next_program", pointer, pointer, pointer),
            ("bpf_object__next_map", pointer, pointer, pointer),
            ("bpf_program__fd", number, pointer),
            ("bpf_program__name", text, pointer),
            ("bpf_program__type", number, pointer),
            ("bpf_program__set_autoload", number, pointer, ctypes.c_bool),
            ("bpf_map__fd", number, pointer),
            ("bpf_map__name", text, pointer),
            *((f"bpf_map__{name}", number, pointer) for name in _MAP_NUMBERS),
            ("bpf_map__set_max_entries", number, pointer, ctypes.c_uint32),
            ("bpf_obj_get_info_by_fd", number, number, pointer, pointer),
            ("bpf_map_update_elem", number, number, text, text, ctypes.c_uint64),
            ("bpf_map_delete_elem", number, number, text),
            ("bpf_map_lookup_elem", number, number, text, pointer),
            ("bpf_map_lookup_batch", number, number, pointer, pointer, pointer, pointer, pointer, pointer),
            ("bpf_raw_tracepoint_open", number, text, number),
        ):
            function = getattr(library, str(name))
            function.restype, function.argtypes = result, arguments
        _library = library
    return _library


def _load(
    library: ctypes.CDLL, path: Path, program: str, sizes: Mapping[str, int], without: str, log: list[str]
) -> LibbpfProgram:
    handle = library.bpf_object__open_file(str(path).encode(), None)
    if not handle:
        raise LoadError(_explain(f"{path.name} cannot be read", ctypes.get_errno(), log))
    try:
        for name, entries in sizes.items():
            map_handle = library.bpf_object__find_map_by_name(handle, name.encode())
            if not map_handle or library.bpf_map__set_max_entries(map_handle, entries) < 0:
                raise LoadError(f"{path.name}: map {name!r} cannot have {entries} entries")
        if without:
            _leave_out(library, handle, without)
        if (result := library.bpf_object__load(handle)) < 0:
            raise LoadError(_explain(f"the kernel refused {path.name}", -result, log))
        return LibbpfProgram(library, handle, program)
    except LoadError:
        library.bpf_object__close(handle)
        raise


def _leave_out(library: ctypes.CDLL, handle: int, prefix: str) -> None:
    program = library.bpf_object__next_program(handle, None)
    while program:
        if library.bpf_program__name(program).decode().startswith(prefix):
            library.bpf_program__set_autoload(program, False)
        program = library.bpf_object__next_program(handle, program)


def _explain(what: str, code: int, log: list[str]) -> str:
    reason = os.strerror(code)
    if code == errno.EPERM or (code == errno.EACCES and os.geteuid() != 0):  # EACCES: also what the verifier refuses
        return f"{what}: {reason}: needs root, or CAP_BPF and CAP_PERFMON"
    lines = [line for line in "".join(log).splitlines() if line.strip()][-LOG_LINES:]
    return "\n  ".join([f"{what}: {reason}", *lines])


def _format(form: bytes, arguments: int) -> str:
    """Returns what printf would print of a va_list. Both x86-64 and aarch64 pass one as a pointer."""
    va_list = ctypes.string_at(
        arguments, _VA_LIST_BYTES
    )  # each vsnprintf uses up a va_list, so the second needs a copy
    libc = ctypes.CDLL(None)
    libc.vsnprintf.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_char_p)
    length = libc.vsnprintf(None, 0, form, va_list)
    if length < 0:
        return form.decode(errors="replace")
    buffer = ctypes.create_string_buffer(length + 1)
    libc.vsnprintf(buffer, length + 1, form, ctypes.string_at(arguments, _VA_LIST_BYTES))
    return buffer.value.decode(errors="replace")
