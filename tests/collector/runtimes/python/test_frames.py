"""Stacks of real Python programs, by the interpreters of this machine, beside the calls that are known."""

import ast
import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from collector.batches.locations import locate
from collector.bpf.sampler import Sampler
from collector.bpf.samples import DrainedSamples
from collector.host import Host
from collector.kernel import Kernel
from tests.collector.runtimes.python.interpreters import Interpreter, interpreters
from tests.collector.watching import watching
from tests.shares import compare_share
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.ebpf
PROGRAM = Path(__file__).parent / "known.py"
FREQUENCY_HZ = 999
SAMPLES = 400

# Which function of the program calls which; between the two may be functions of the standard library.
CALLS = {
    "<module>": {"main"},
    "main": {"nested", "in_tasks"},
    "nested": {"nested.<locals>.<listcomp>", "recurse"},
    "nested.<locals>.<listcomp>": {"recurse"},
    "worker": {"recurse"},
    "recurse": {"recurse", "generate"},
    "generate": {"generate.<locals>.<genexpr>"},
    "generate.<locals>.<genexpr>": {"Shop.__init__", "Shop.price", "burn"},
    "Shop.price": {"Shop.key"},
    "Shop.key": {"Shop.__init__"},
    "Shop.__init__": {"burn"},
    "in_tasks": {"outer"},
    "outer": {"middle"},
    "middle": {"inner"},
    "inner": {"burn"},
}
OUTERMOST = {"<module>", "Thread._bootstrap"}
QUALIFIED = {name.rpartition(".")[2]: name for name in (*CALLS, *OUTERMOST)}


@dataclass
class Frame:
    function: str
    file: str
    line: int


@dataclass
class Seen:
    """Stacks of a process (frames from the outermost on; native ones have no line) and how often each was seen."""

    stacks: list[tuple[list[Frame], int]] = field(default_factory=list)

    def with_qualified_names(self) -> "Seen":
        """As of an interpreter that knows such names, which are there since 3.11."""
        return Seen(
            [([replace(f, function=QUALIFIED.get(f.function, f.function)) for f in s], n) for s, n in self.stacks]
        )

    def total(self) -> int:
        return sum(n for _, n in self.stacks)

    def check(self, what: str, within: float) -> None:
        """Compares the share of right stacks, which should be all."""
        total = self.total()
        wrong = Counter(tuple(map(str, stack)) for stack, n in self.stacks if not is_right(stack) for _ in range(n))
        if sum(wrong.values()) > total / 100:
            for stack, n in wrong.most_common(2):
                print(n, *stack, sep="\n  ")
        assert total > SAMPLES / 4, f"only {total} samples"
        compare_share(what, 1, 1 - sum(wrong.values()) / total, within)

    def functions(self) -> set[str]:
        return {frame.function for stack, _ in self.stacks for frame in stack}


def is_right(stack: list[Frame]) -> bool:
    python = [frame for frame in stack if frame.line]
    own = [frame for frame in python if frame.file == str(PROGRAM)]
    calls = itertools.pairwise(own)
    return (
        bool(own)
        and python[0].function in OUTERMOST
        and own[0].function in ("<module>", "worker")
        and all(callee.function in CALLS[caller.function] for caller, callee in calls)
        and sum(frame.function == "recurse" for frame in own) in complete_depths(own)
        and all(frame.line in LINES[frame.function] for frame in own)
    )


def complete_depths(own: list[Frame]) -> range:
    """How many calls of `recurse` there are: all 31 where the innermost has called the next."""
    return range(31, 32) if any(frame.function == "generate" for frame in own) else range(32)


def lines_of_functions() -> dict[str, range]:
    found = {"<module>": range(1, 1000)}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found[prefix + child.name] = range(child.lineno, (child.end_lineno or 0) + 1)
                inner = f"{prefix}{child.name}." + ("" if isinstance(child, ast.ClassDef) else "<locals>.")
            elif isinstance(child, ast.GeneratorExp | ast.ListComp):
                kind = "genexpr" if isinstance(child, ast.GeneratorExp) else "listcomp"
                found[f"{prefix}<{kind}>"] = range(child.lineno, (child.end_lineno or 0) + 1)
            visit(child, inner)

    visit(ast.parse(PROGRAM.read_text()), "")
    return found


LINES = lines_of_functions()


def natives_before(stack: list[Frame], function: str) -> int:
    """How many native frames are between the function and the Python function that called it."""
    callee = next(at for at, frame in enumerate(stack) if frame.function == function)
    return next(n for n in range(callee) if stack[callee - n - 1].line)


@pytest.fixture(scope="module")
def watched() -> Iterator[tuple[Host, Sampler]]:
    with watching(FREQUENCY_HZ, "libbpf") as both:
        yield both


def run(watched: tuple[Host, Sampler], *command: str) -> tuple[Seen, Seen]:
    """What is seen of a process that the command starts, and of those that it forks."""
    host, sampler = watched
    with started(*command) as process:
        pid = inner_process(process.pid)
        wait_until_known(host, pid)
        assert process.stdin
        process.stdin.write(b"\n")
        process.stdin.flush()
        until = time.monotonic() + PATIENCE_S
        while not whole(sampler.drain(), pid) and time.monotonic() < until:  # its unwinding tables are made
            time.sleep(0.3)
        seen, until = (Seen(), Seen()), time.monotonic() + PATIENCE_S
        while not enough(seen, pid) and time.monotonic() < until:
            time.sleep(0.25)
            add(seen, pid, sampler.drain(), host)
        for child in descendants(pid):
            os.kill(child, 9)
    return seen


def whole(samples: DrainedSamples, pid: int) -> bool:
    """Whether there are stacks of the process, most of which reach the outermost frame."""
    ends = samples.stack_end[samples.stack][samples.pid == pid]
    return len(ends) > 0 and float(np.mean(ends == 0)) > 0.9


def enough(seen: tuple[Seen, Seen], pid: int) -> bool:
    """A busy host may give a process that was forked less of its CPUs."""
    return seen[0].total() >= SAMPLES and (not descendants(pid) or seen[1].total() > SAMPLES / 4)


def add(seen: tuple[Seen, Seen], pid: int, samples: DrainedSamples, host: Host) -> None:
    stacks = locate(samples, host.mappings, Kernel(), host.runtimes)
    children = set(descendants(pid))
    counted = Counter(zip(samples.pid.tolist(), stacks.row.tolist(), strict=True))
    ends = np.cumsum(stacks.depth)
    for (sampled, row), n in counted.items():
        if sampled == pid or sampled in children:
            frames = stacks.frames[ends[row] - stacks.depth[row] : ends[row]][::-1].tolist()
            names = [stacks.names[stacks.name[location]] for location in frames]
            seen[sampled != pid].stacks.append(([Frame(*name[:2], name.line) for name in names], n))


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def inner_process(pid: int) -> int:
    """The process that a command runs; the command itself if it runs none."""
    children = descendants(pid)
    return children[-1] if children else pid


def descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [below for child in children for below in descendants(child)]


def wait_until_known(host: Host, pid: int) -> None:
    until = time.monotonic() + 300
    while not host.ready(pid):
        assert time.monotonic() < until, f"process {pid} is not known"
        time.sleep(0.02)


@pytest.mark.parametrize("python", interpreters(), ids=lambda python: f"{python.name}-{Path(python.library).name}")
def test_functions_show_in_the_order_of_their_calls(watched: tuple[Host, Sampler], python: Interpreter) -> None:
    seen, _ = run(watched, python.path, str(PROGRAM), "nested", "threads", "asyncio")
    seen = seen if python.minor >= 11 else seen.with_qualified_names()
    seen.check(f"right stacks of Python {python.name}", 0.01)
    assert {"Shop.__init__", "inner", "worker", "generate.<locals>.<genexpr>"} <= seen.functions()
    places = [
        natives_before(stack, "Shop.price") < 3 <= natives_before(stack, "Shop.key")  # which sorted() calls
        for stack, n in seen.stacks
        for _ in range(n)
        if "[truncated" not in stack[0].function and any(frame.function == "Shop.key" for frame in stack)
    ]
    assert len(places) > 20
    compare_share("stacks with native frames in their places", 1, sum(places) / len(places), 0.02)


@pytest.mark.parametrize(
    "python", [python for python in interpreters() if python.minor >= 12], ids=lambda python: python.name
)
def test_functions_called_through_perf_s_trampolines_show_once(
    watched: tuple[Host, Sampler], python: Interpreter
) -> None:
    seen, _ = run(watched, python.path, "-X", "perf", str(PROGRAM), "nested")
    seen.check(f"right stacks of Python {python.name} -X perf", 0.02)
    twice = 0  # a trampoline stands for a function only before that has its own frame, or no more
    for stack, count in seen.stacks:
        own = [frame for frame in stack if frame.file == str(PROGRAM)]
        twice += count * (not all(frame.line for frame in own[:-1]))
    assert twice <= seen.total() / 50  # frames change while a sample reads them


MADE_ANEW = """
print("ready", flush=True)
input()
while True:
    for number in range(4):
        code = compile("x = 0\\nfor i in range(40_000): x += i", f"script {number}", "exec")
        exec(code, {})
        del code
"""


@pytest.mark.parametrize(
    "python", [python for python in interpreters() if python.minor >= 12], ids=lambda python: python.name
)
def test_code_that_takes_the_place_of_other_code_in_memory_has_its_own_name(
    watched: tuple[Host, Sampler], python: Interpreter
) -> None:
    seen, _ = run(watched, python.path, "-c", MADE_ANEW)
    shares = Counter[str]()
    for stack, count in seen.stacks:
        shares[[frame.file for frame in stack if frame.line or "python]" in frame.function][-1]] += count
    scripts = [shares[f"script {number}"] / seen.total() for number in range(4)]
    assert max(scripts) < 0.35, shares  # most are gone before they are read


@pytest.mark.parametrize(
    ("path", "fork"),
    [(sys.executable, "fork in C"), *((python.path, "fork") for python in interpreters())],
    ids=lambda value: value.removeprefix(str(Path.home())),
)
def test_a_process_that_was_forked_shows_its_functions(watched: tuple[Host, Sampler], path: str, fork: str) -> None:
    for seen, when in zip(run(watched, path, str(PROGRAM), "nested", fork), ("before", "after"), strict=True):
        seen.with_qualified_names().check(f"right stacks of {path} {when} {fork}", 0.02)


@pytest.mark.parametrize(
    "python",
    [python for python in interpreters() if python.minor >= 8],
    ids=lambda python: f"{python.name}-{Path(python.library).name}",
)
def test_an_interpreter_in_the_interpreter_shows_with_who_called_it(
    watched: tuple[Host, Sampler], python: Interpreter
) -> None:
    seen, _ = run(watched, python.path, str(PROGRAM), "interpreter")
    within = [([frame.function for frame in stack if frame.line], n) for stack, n in seen.stacks]
    within = [(functions, n) for functions, n in within if functions[-1:] == ["burn_elsewhere"]]
    assert sum(n for _, n in within) > 0.8 * seen.total()  # without the GIL, 8 % make interpreters and code
    wrong = [functions for functions, _ in within if functions[:3] != ["<module>", "main", "in_interpreter"]]
    assert len(wrong) <= len(within) / 50, wrong[:3]


def test_functions_of_a_container_with_its_own_process_ids_show(loader: str) -> None:
    with watching(FREQUENCY_HZ, loader) as both:
        seen, _ = run(both, "unshare", "--fork", "--pid", "--kill-child", sys.executable, str(PROGRAM), "nested")
    seen.check("right stacks of Python with process IDs of its own", 0.02)


@pytest.mark.parametrize(("lie", "shown"), [("frames", True), ("threads", False), ("nowhere", False)])
def test_a_process_that_lies_about_its_python_is_survived(
    watched: tuple[Host, Sampler], tmp_path: Path, lie: str, shown: bool
) -> None:
    host, sampler = watched
    subprocess.run(["gcc", "-rdynamic", PROGRAM.with_name("lying.c"), "-o", tmp_path / "lying"], check=True)
    seen = Seen(), Seen()
    with started(str(tmp_path / "lying"), lie) as process:
        wait_until_known(host, process.pid)
        sampler.drain()
        until = time.monotonic() + PATIENCE_S
        while seen[0].total() < 50 and time.monotonic() < until:
            time.sleep(0.2)
            add(seen, process.pid, sampler.drain(), host)
    functions = seen[0].functions()
    assert seen[0].total() >= 50
    assert ("[python]" in functions, "[truncated: too deep]" in functions) == (shown, shown)
