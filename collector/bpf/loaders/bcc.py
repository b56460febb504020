"""The loader for kernels without BTF: BCC compiles the source on the host (docs/loaders.md).

BCC is only the compiler, in a process that ends (bcc_compile.py). The committed object, which such a kernel cannot
load, says which maps and programs there are; they are created here.
"""

import base64
import errno
import functools
import json
import logging
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from collector.bpf.loaders.bpf_syscall import MapDefinition, VerifierError, create_map, load_program
from collector.bpf.loaders.libbpf import LOG_LINES, describe
from collector.bpf.loaders.loader import LoadError
from collector.bpf.loaders.task_layout import TaskLayout

log = logging.getLogger(__name__)

MACHINE = "x86_64"
"""The only machine for which the layout of the kernel's structures can be found."""

_COMPILE_SECONDS = 120
_LOAD_MAP, _MAP_FD = 0x18, 1  # BPF_LD | BPF_IMM | BPF_DW; BPF_PSEUDO_MAP_FD
_WITHOUT = {
    "fsbase": "samples have no trace context and no Python frames",
    "registers": "samples taken in the kernel have no user frames",
    "real_parent": "a process that was just forked has no user frames until its mappings were read",
    "state": "waits of threads are not followed",
}


class BccProgram:
    """Loaded programs and maps, by name."""

    def __init__(self, main: str, programs: dict[str, int], maps: dict[str, int]) -> None:
        self._programs, self._maps = programs, maps
        self.fd = self.program_fd(main)

    def programs(self) -> Collection[str]:
        return self._programs

    def program_fd(self, name: str) -> int:
        if name not in self._programs:
            raise LoadError(f"there is no program {name!r}")
        return self._programs[name]

    def map_fd(self, name: str) -> int:
        if name not in self._maps:
            raise LoadError(f"there is no map {name!r}")
        return self._maps[name]

    def close(self) -> None:
        close_all(self._programs, self._maps)


class BccLoader:
    def load(self, source: Path, program: str, sizes: Mapping[str, int], without: str = "") -> BccProgram:
        if platform.machine() != MACHINE:
            raise LoadError(f"the bcc loader is for {MACHINE}, this is {platform.machine()}: use a kernel with BTF")
        definitions, types = describe(source.with_suffix(".o"))
        if program not in types:
            raise LoadError(f"{source.name} has no program {program!r}")
        names = [definition.name for definition in definitions]
        code, layout = compiled(source, tuple(types), tuple(names))
        check_layout(layout)
        types = {name: kind for name, kind in types.items() if not (without and name.startswith(without))}
        maps: dict[str, int] = {}
        programs: dict[str, int] = {}
        try:
            create_maps(maps, resized(definitions, sizes))
            for name, kind in types.items():
                programs[name] = load(name, kind, with_maps(code[name], [maps[each] for each in names]))
            return BccProgram(program, programs, maps)
        except LoadError:
            close_all(programs, maps)
            raise


@functools.lru_cache(maxsize=2)  # a caller that cannot load everything tries again with less
def compiled(source: Path, programs: tuple[str, ...], maps: tuple[str, ...]) -> tuple[dict[str, bytes], TaskLayout]:
    """Returns the instructions of each program, which refer to maps by their indices in `maps`, and the layout of the
    kernel's structures. Raises LoadError."""
    job = json.dumps({"source": str(source), "programs": programs, "maps": maps})
    try:
        child = subprocess.run(
            [sys.executable, "-m", "collector.bpf.loaders.bcc_compile"],
            input=job.encode(), capture_output=True, timeout=_COMPILE_SECONDS, cwd="/",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LoadError(f"BCC cannot compile {source.name}: {error}") from error
    try:
        answer: dict[str, Any] = json.loads(child.stdout)
    except ValueError:
        answer = {"error": f"BCC ended with status {child.returncode} while it compiled {source.name}"}
    if "error" in answer:
        log_lines = child.stderr.decode(errors="replace").splitlines()
        raise LoadError("\n  ".join([answer["error"], *log_lines[-LOG_LINES:]]))
    code = {name: base64.b64decode(instructions) for name, instructions in answer["programs"].items()}
    return code, TaskLayout(**answer["layout"])


def check_layout(layout: TaskLayout) -> None:
    """Logs what will not work. Raises LoadError if nothing useful would work."""
    if layout.mm is None or layout.tgid is None:
        raise LoadError("the fields of this kernel's task_struct are not found: use a kernel with BTF")
    for field, consequence in _WITHOUT.items():
        if getattr(layout, field) is None:
            log.warning("this kernel's task_struct.%s is not found: %s", field, consequence)


def resized(definitions: list[MapDefinition], sizes: Mapping[str, int]) -> list[MapDefinition]:
    if unknown := sizes.keys() - {definition.name for definition in definitions}:
        raise LoadError(f"there is no map {', '.join(map(repr, sorted(unknown)))}")
    return [each._replace(max_entries=sizes.get(each.name, each.max_entries)) for each in definitions]


def create_maps(maps: dict[str, int], definitions: list[MapDefinition]) -> None:
    """Creates maps. Adds each to `maps` at once, so that the caller can close them. Raises LoadError."""
    _allow_memory()
    for definition in definitions:
        try:
            maps[definition.name] = create_map(definition)
        except OSError as error:
            raise LoadError(_explain(f"the kernel refused map {definition.name!r}", error)) from error


def load(name: str, kind: int, code: bytes) -> int:
    try:
        return load_program(name, kind, code)
    except OSError as error:
        raise LoadError(_explain(f"the kernel refused program {name!r} as BCC compiled it", error)) from error


def with_maps(code: bytes, descriptors: list[int]) -> bytes:
    """Returns the instructions with descriptors in place of indices of maps. Raises LoadError."""
    instructions = np.frombuffer(code, [("operation", "u1"), ("registers", "u1"), ("offset", "<i2"), ("value", "<i4")])
    instructions = instructions.copy()
    refers = (instructions["operation"] == _LOAD_MAP) & (instructions["registers"] >> 4 == _MAP_FD)
    indices = instructions["value"][refers]
    if len(indices) and not 0 <= indices.min() <= indices.max() < len(descriptors):
        raise LoadError("BCC compiled a reference to a map that does not exist")
    instructions["value"][refers] = np.array(descriptors, np.int32)[indices]
    return instructions.tobytes()


def close_all(*groups: dict[str, int]) -> None:
    for group in groups:
        while group:
            os.close(group.popitem()[1])


def _allow_memory() -> None:
    """Raises the limit of locked memory: before Linux 5.11 maps count as such."""
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        log.debug("the limit of locked memory cannot be raised")


def _explain(what: str, error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES) and os.geteuid() != 0:
        return f"{what}: {os.strerror(error.errno)}: needs root, or CAP_BPF and CAP_PERFMON"
    lines = error.log.splitlines()[-LOG_LINES:] if isinstance(error, VerifierError) else []
    return "\n  ".join([f"{what}: {error.strerror}", *lines])
