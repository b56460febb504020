"""Programs whose stacks are known: how they are built and run, and what must be seen of them."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
DEEP = ("spin", *(f"level_{n}" for n in range(60, 0, -1)), "main")


GREENLET_BEGINS = "_ZN8greenlet12UserGreenlet15inner_bootstrapEP9_greenletP7_object"


@dataclass(frozen=True)
class Program:
    """`chain`: its own functions from the leaf to the outermost; a sample shows all, or all from one of them on."""

    name: str
    command: tuple[str, ...]
    chain: tuple[str, ...]
    has_others: bool = False  # threads of its runtime, which call none of these


SCENARIOS = {
    "chain": DEEP,
    "recursion": ("spin", *["recurse"] * 41, "main"),
    "alloca": ("spin", "with_alloca", "main"),
    "alignment": ("spin", "with_alignment", "main"),
    "libc": ("spin", "compare", "through_libc", "main"),
    "signal": ("spin", "handler", "interrupted", "main"),
    "alternate": ("spin", "handler", "interrupted", "main"),
    "restorer": ("spin", "handler", "restore_itself", "interrupted", "main"),
    "null call": ("spin", "handler", "goes_on", "calls_nothing", "main"),
    "vdso": ("ask_the_time", "main"),
    "kernel": ("ask_the_kernel", "main"),
    "threads": (*DEEP[:21], "in_thread"),
    "plugin": ("spin", "inner", "plugin", "call_plugin", "main"),
}

CARRIED = ("spin", "innermost", "by_r15", "fourth", "by_r14", "third", "by_r13", "second", "by_r12", "first", "by_rbx")
REGISTERS = {
    "carried": (*CARRIED, "main"),
    "signal": ("spin", "innermost", "handler", "interrupted", "by_rbx", "main"),
    "pushes": ("pushes_late", "by_rbx", "main"),
    "return": ("in_rdx", "main"),
    "vfork": ("starts", "main"),
}
"""Scenarios of `registers`."""

# How `chain` is built, and the scenarios that each build runs.
BUILDS: dict[str, tuple[list[str], list[str]]] = {
    "gcc-O2": (["gcc", "-O2", "-fomit-frame-pointer"], list(SCENARIOS)),
    "gcc-O3": (["gcc", "-O3"], ["chain", "recursion"]),
    "gcc-O2-frame-pointers": (["gcc", "-O2", "-fno-omit-frame-pointer"], ["chain", "signal"]),
    "gcc-O2-no-pie": (["gcc", "-O2", "-no-pie", "-fno-pie"], ["chain", "libc"]),
    "gcc-O2-static": (["gcc", "-O2", "-static", "-DSTATIC"], ["chain", "signal", "threads"]),
    "gcc-O2-static-pie": (["gcc", "-O2", "-static-pie", "-DSTATIC"], ["chain"]),
    "gcc-O2-debug-frame": (["gcc", "-O2", "-g", "-fno-asynchronous-unwind-tables"], ["chain"]),
    "clang-O2": (["clang", "-O2"], ["chain", "alloca", "alignment", "signal", "plugin"]),
    "clang-O3": (["clang", "-O3", "-march=x86-64-v2"], ["chain", "recursion"]),
}


def build(folder: Path) -> Iterator[Program]:
    """Every program that the compilers here can build."""
    _run(["gcc", "-O2", "-shared", "-fPIC", HERE / "plugin.c", "-o", folder / "plugin.so"])
    for name, (compiler, scenarios) in BUILDS.items():
        executable = folder / name
        _run([*compiler, HERE / "chain.c", "-o", executable, "-pthread"])
        for scenario in scenarios:
            words = (str(executable), scenario, str(folder / "plugin.so"))
            yield Program(f"{name} {scenario}", words, SCENARIOS[scenario])
    _run(["gcc", "-O2", "-fomit-frame-pointer", HERE / "assembly.c", "-o", folder / "assembly"])
    yield Program("assembly", (str(folder / "assembly"), "frames"), ("asm_spin", "callback", "with_frame", "main"))
    for name, flags in (("registers", []), ("registers-frame-pointers", ["-fno-omit-frame-pointer"])):
        _run(["gcc", "-O2", *flags, HERE / "registers.c", "-o", folder / name])
        for scenario, chain in REGISTERS.items() if not flags else [("carried", REGISTERS["carried"])]:
            yield Program(f"{name} {scenario}", (str(folder / name), scenario), chain)
    yield from _others(folder)


def _others(folder: Path) -> Iterator[Program]:
    for compiler in ("g++", "clang++"):
        _run([compiler, "-O2", HERE / "exceptions.cpp", "-o", folder / compiler])
        chain = (*["_Z4falli"] * 21, "_Z7attemptv", "main")
        yield Program(f"{compiler} exceptions", (str(folder / compiler),), chain)
    _run(["g++", "-O2", "-rdynamic", HERE / "greenlet.cpp", "-o", folder / "greenlet"])
    yield Program("greenlet", (str(folder / "greenlet"),), ("spin", GREENLET_BEGINS))
    if shutil.which("musl-gcc"):
        _run(["musl-gcc", "-O2", "-DSTATIC", HERE / "chain.c", "-o", folder / "chain-musl"])
        yield Program("musl", (str(folder / "chain-musl"), "chain"), (*DEEP, "_start"))
    if shutil.which("go"):
        _run(["go", "build", "-o", folder / "chain-go", HERE / "chain.go"])
        chain = ("main.spin", *["main.descend"] * 21, "main.inGoroutine", "runtime.goexit.abi0")
        yield Program("go", (str(folder / "chain-go"),), chain, has_others=True)
        _run(["go", "build", "-ldflags=-s -w", "-o", folder / "chain-go-stripped", HERE / "chain.go"])
        yield Program("go, stripped", (str(folder / "chain-go-stripped"),), chain, has_others=True)
    if shutil.which("rustc") and subprocess.run(["rustc", "--version"], capture_output=True).returncode == 0:
        _run(["rustc", "-O", "-Csymbol-mangling-version=v0", HERE / "chain.rs", "-o", folder / "chain-rs"])
        yield Program("rust", (str(folder / "chain-rs"),), ("spin", *["descend"] * 21, "main", "main"))


def _run(command: list[str | Path]) -> None:
    subprocess.run(command, check=True, capture_output=True)
