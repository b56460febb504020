"""Stacks of Go programs whose runtime changes between the stacks of goroutines and of the scheduler: real programs,
real eBPF."""

import os
import shutil
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from collector.processes.mapped_files import TRUNCATED
from tests.collector.unwind.programs import HERE, Program
from tests.collector.unwind.test_programs import FREQUENCY_HZ, run
from tests.collector.watching import watching
from tests.go import needs_go
from tests.shares import compare_share

pytestmark = [needs_go, pytest.mark.ebpf]

Stack = tuple[str, ...]

CALLERS = {
    "main.burn": {"main.calledBack"},
    "main.calledBack": {"c_calls_go", "c_calls_deep", "c_first"},
    "main.walk": {"main.walk", "main.walks"},
    "main.walks": {"main.inGoroutine", "main.calledBack"},
    "main.grow": {"main.grow", "main.begins", "main.calledBack"},
    "main.begins": {"main.grows.func1"},
    "main.tree": {"main.tree", "main.collects"},
    "main.asks": {"main.inGoroutine"},
    "main.collects": {"main.inGoroutine"},
    "main.signals": {"main.inGoroutine"},
    "main.callsC": {"main.inGoroutine"},
    "main.callsBack": {"main.inGoroutine"},
    "main.callsDeep": {"main.moves.func1"},
    "c_leaf": {"c_works"},
    "c_works": {"runtime.asmcgocall"},
    "c_calls_go": {"runtime.asmcgocall"},
    "c_calls_deep": {"runtime.asmcgocall"},
    "c_moved": {"c_calls_deep"},
    "runtime.asmcgocall": {"runtime.cgocall"},
    "runtime.cgocall": {"main._Cfunc_c_works", "main._Cfunc_c_calls_go", "main._Cfunc_c_calls_deep"},
    "main._Cfunc_c_works": {"main.callsC", "main.calledBack"},
    "main._Cfunc_c_calls_go": {"main.callsBack"},
    "main._Cfunc_c_calls_deep": {"main.callsDeep"},
}
"""What calls each function of the program, if functions that are not listed are left out."""
FIRST = {
    "main.inGoroutine": "runtime.goexit",
    "main.grows.func1": "runtime.goexit",
    "main.moves.func1": "runtime.goexit",
    "c_first": "_start",
}
"""Its outermost functions, and where their stacks end."""
OUTERMOST = {"runtime.goexit", "runtime.mstart", "runtime.mcall", "runtime.rt0_go", "runtime.main"}
LEAVES = {"runtime.goschedImpl", "runtime.preemptPark"}
"""With these, the thread leaves a goroutine that wanted a larger stack."""

OF_GO = {
    "work for a goroutine": ("runtime.systemstack", "main.walk", "runtime.goexit"),
    "a larger stack": ("runtime.newstack", "main.grow"),
    "the garbage collector": ("runtime.systemstack", "runtime.gcBgMarkWorker"),
    "the clock": ("?", "time", "main.asks"),
    "a signal": ("runtime.sigtramp", "main.signals"),
}
OF_C = {
    "C": ("c_leaf", "main.callsC"),
    "Go that C calls": ("main.burn", "c_calls_go"),
    "C in Go that C calls": ("c_leaf", "c_calls_go", "main.callsBack"),
    "work for Go that C calls": ("runtime.systemstack", "main.walk", "c_calls_go", "main.callsBack"),
    "C below a stack that has moved": ("c_moved", "main.callsDeep"),
}
OF_LIBRARY = {
    "Go that C calls": ("main.burn", "c_first"),
    "C in Go that C calls": ("c_leaf", "c_first"),
    "work for Go that C calls": ("runtime.systemstack", "main.walk", "c_first"),
}
KINDS: dict[str, dict[str, Stack]] = {"go-alone": OF_GO, "go-with-c": OF_GO | OF_C, "c-with-go": OF_LIBRARY}
"""What stacks each program has, and functions that they have from the leaf on."""


VERSIONS = "go1.18.10", "go1.19.13", "go1.20.14", "go1.21.13", "go1.22.12", "go1.23.12", "go1.24.13", "go1.25.7"


def build(folder: Path, name: str, *flags: str, cgo: bool = False, version: str = "local") -> Program:
    environ = os.environ | {"GOFLAGS": "-mod=mod", "CGO_ENABLED": str(int(cgo)), "GOTOOLCHAIN": version}
    subprocess.run(
        ["go", "build", *flags, "-o", folder / name, "."], cwd=HERE / "gostacks", env=environ, check=True, timeout=600
    )
    return Program(name, (str(folder / name),), ())


def stripped(program: Program) -> Program:
    path = f"{program.command[0]}-stripped"
    subprocess.run(["strip", program.command[0], "-o", path], check=True)
    return Program(Path(path).name, (path,), ())


def assert_whole(programs: list[Program]) -> None:
    """The stacks of all programs lead to the first function of their goroutine, through all changes of the stack."""
    wrong: dict[str, Counter[Stack]] = {}
    with watching(FREQUENCY_HZ) as (host, sampler):
        for seen in run(programs, host, sampler):
            stacks = Counter[Stack]()
            for stack, n in seen.stacks.items():
                stacks[tuple(name.removesuffix(".abi0") for name in stack)] += n
            cut = Counter({stack: n for stack, n in stacks.items() if not is_right(stack)})
            kinds = KINDS[seen.program.name.removesuffix("-stripped")]
            counts = {kind: sum(n for s, n in stacks.items() if has(s, names)) for kind, names in kinds.items()}
            print(seen.program.name, stacks.total(), counts, *cut.most_common(5), sep="\n  ")
            compare_share(f"whole stacks of {seen.program.name}", 1, 1 - cut.total() / stacks.total(), 1)
            if cut.total() > 0.015 * stacks.total() or min(counts.values()) == 0:
                wrong[seen.program.name] = cut
    assert not wrong


def is_right(stack: Stack) -> bool:
    if stack[-1].startswith(TRUNCATED.file[:-1]):
        return False
    own = [name for name in stack if name in CALLERS or name in FIRST]
    if not any(name.startswith(("main.", "c_")) for name in own):
        in_go = any(name.startswith("runtime.") for name in stack)
        return not in_go or stack[-1] in OUTERMOST or not LEAVES.isdisjoint(stack)
    return stack[-1] == FIRST.get(own[-1]) and all(caller in CALLERS.get(name, ()) for name, caller in pairwise(own))


def has(stack: Stack, names: Stack) -> bool:
    """Whether a stack has these functions in this order."""
    left = iter(stack)
    return all(name in left for name in names)


def test_stacks_go_on_where_go_changes_stacks(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    whole = build(folder, "go-alone")
    programs = [whole, stripped(whole)]
    if shutil.which("gcc"):
        whole = build(folder, "go-with-c", cgo=True)
        programs += [whole, stripped(whole)]
    assert_whole(programs)


@pytest.mark.soak  # Go downloads each version, and builds all of its libraries
@pytest.mark.parametrize("version", VERSIONS)
def test_stacks_go_on_in_programs_of_other_versions(tmp_path: Path, version: str) -> None:
    folder = tmp_path / "programs"
    programs = [build(folder, "go-alone", version=version), build(folder, "go-with-c", cgo=True, version=version)]
    assert_whole([*programs, *map(stripped, programs)])


@pytest.mark.soak  # Go builds all of its libraries
def test_stacks_go_on_in_position_independent_programs_and_libraries(tmp_path: Path) -> None:
    folder = tmp_path / "programs"
    alone = build(folder, "go-alone", "-buildmode=pie")
    with_c = build(folder, "go-with-c", "-buildmode=pie", cgo=True)
    build(folder, "libgo.so", "-buildmode=c-shared", cgo=True)
    user = folder / "c-with-go"
    source = HERE / "calls_go.c"
    subprocess.run(["gcc", "-O2", source, "-o", user, f"-Wl,-rpath,{folder}", folder / "libgo.so"], check=True)
    assert_whole([alone, stripped(alone), with_c, stripped(with_c), Program("c-with-go", (str(user),), ())])
