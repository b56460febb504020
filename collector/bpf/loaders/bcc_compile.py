"""Compiles the profiler's source with BCC, in a process of its own: BCC takes 130 MB, which end with it.

Reads a job as JSON from standard input: `source`, the path of a .bpf.c file; `programs`, the functions wanted; `maps`,
the names that instructions refer to by their places in this list. Answers on standard output with `layout`, the fields
of TaskLayout, and `programs`, base64 of the instructions by name; or with `error`.
"""

import base64
import importlib.util
import json
import os
import sys
from dataclasses import asdict
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from collector.bpf.loaders.loader import LoadError
from collector.bpf.loaders.task_layout import TaskLayout, find_task_layout

PACKAGES = "python3-bpfcc and libbpfcc (Debian, Ubuntu: apt install python3-bpfcc)"

_SYSTEM_PACKAGES = ["/usr/lib/python3/dist-packages"]  # of Debian's Python; python3-bpfcc is for every Python 3
_HEADERS = "bcc"  # beside the source


def main() -> int:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # BCC writes to both
    job = json.load(sys.stdin)
    try:
        answer = compile_source(Path(job["source"]), job["programs"], job["maps"])
    except LoadError as error:
        answer = {"error": str(error)}
    with answers:
        json.dump(answer, answers)
    return 0


def compile_source(source: Path, programs: list[str], maps: list[str]) -> dict[str, Any]:
    """The answer of this process. Raises LoadError."""
    layout = find_task_layout()
    bcc = import_bcc()
    os.environ["BCC_KERNEL_SOURCE"] = str(source.parent / _HEADERS)
    try:
        compiled = bcc.BPF(text=source.read_text(), cflags=flags(source, layout, maps))
        code = {name: base64.b64encode(compiled.dump_func(name.encode())).decode() for name in programs}
    except Exception as error:  # BCC raises nothing more specific
        raise LoadError(f"BCC cannot compile {source.name}: {error}") from error
    return {"layout": asdict(layout), "programs": code}


def flags(source: Path, layout: TaskLayout, maps: list[str]) -> list[str]:
    """The compiler's arguments: see bpf/bcc/."""
    offsets = {name: offset for name, offset in asdict(layout).items() if offset is not None}
    return [
        "-DCOMPILED_BY_BCC",
        f"-I{source.parent}",
        "-DMAP(name)=((void *)bpf_pseudo_fd(1, MAP_##name))",
        '-DPROGRAM_SEC(type,name)=__attribute__((section(".bpf.fn." #name)))',
        *(f"-DMAP_{name}={number}" for number, name in enumerate(maps)),
        *(f"-DOFFSET_{name.upper()}={offset}" for name, offset in offsets.items()),
    ]


def import_bcc() -> ModuleType:
    """The package `bcc`, where this Python finds it or Debian puts it, and nothing else from there."""
    spec = importlib.util.find_spec("bcc") or PathFinder.find_spec("bcc", _SYSTEM_PACKAGES)
    if spec is None or spec.loader is None:
        raise LoadError(f"the bcc package is missing: {PACKAGES}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["bcc"] = module
    try:
        spec.loader.exec_module(module)
    except (ImportError, OSError) as error:
        raise LoadError(f"the bcc package cannot be imported: {error}: {PACKAGES}") from error
    if not hasattr(module, "BPF"):
        raise LoadError(f"the package bcc at {spec.origin} is another one: {PACKAGES}")
    return module


if __name__ == "__main__":
    sys.exit(main())
