"""Stacks of real Node programs, by the versions on this machine, beside the calls that are known."""

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from collector.batches.locations import locate
from collector.bpf.sampler import Sampler
from collector.host import Host
from collector.kernel import Kernel
from tests.collector.runtimes.v8.nodes import Node, nodes, running
from tests.collector.watching import watching
from tests.shares import compare_share
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.ebpf
PROGRAM = Path(__file__).parent / "known.js"
LINES = Path(__file__).parent / "lines.js"
SAMPLES = 1500
PAD = f"if (n < 0) {{ {'n = n * 3 + 1; ' * 90} }}"
DEFAULT = [node for node in nodes() if not node.path.startswith(str(Path(__file__).parent))]
OTHERS = [node for node in nodes() if node not in DEFAULT]
MODES = ["--no-opt", "--jitless", "--always-sparkplug", "--maglev", "--interrupt-budget=1000"]
COMPILERS = {
    "interpreter": ["--no-opt", "--no-sparkplug"],
    "jitless": ["--jitless"],
    "Sparkplug": ["--no-opt", "--always-sparkplug"],
    "Maglev": ["--no-opt", "--maglev"],
    "TurboFan": [],
}

# Which function of the program calls which; builtins and functions of Node may be between them.
CALLS = {
    "main": {"recurse", "callbacks"},
    "recurse": {"recurse", "shares"},
    "shares": {"sixty", "thirty", "ten"},
    **{key: {"burn"} for key in ["sixty", "thirty", "ten", "(anonymous)", "compare", "replacer", "toJSON", "thrower"]},
    "callbacks": {"compare", "toJSON", "replacer", "get total", "catcher", "Shop"},
    "get total": {"(anonymous)"},
    "catcher": {"thrower", "burn"},
    "Shop": {"<instance_members_initializer>"},
    "<instance_members_initializer>": set(),
    "burn": set(),
}

FIRST_LOOP, SECOND_LOOP = [[("loops", 25)], [("loops", 26)]], [[("loops", 27)], [("loops", 28)]]
CALL_LINES = [(("calls", 18), "seven"), (("calls", 19), "three")]


class Frame(NamedTuple):
    function: str
    file: str
    line: int


class Stack(NamedTuple):
    """Frames from the outermost on."""

    frames: list[Frame]
    count: int

    @property
    def whole(self) -> bool:
        return len(self.frames) > 1 and not self.frames[0].function.startswith("[truncated")


@pytest.fixture(scope="module")
def watched() -> Iterator[tuple[Host, Sampler]]:
    with watching(999) as both:
        yield both


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("node") / "known.js"
    path.write_text(PROGRAM.read_text().replace("PAD ", f"{PAD} ").replace("  PAD\n", f"  {PAD}\n"))
    return path


def stacks_of(watched: tuple[Host, Sampler], *command: str, samples: int = SAMPLES) -> list[Stack]:
    """The stacks of the first thread of a process, once one was walked to its end: the tables are made meanwhile."""
    host, sampler = watched
    found: list[Stack] = []
    with running(command) as pid:
        wait_until(lambda: any(stack.whole for stack in drained(host, sampler, pid)), seconds=300)
        time.sleep(1.0)
        sampler.drain()
        until = time.monotonic() + PATIENCE_S
        while sum(stack.count for stack in found) < samples and time.monotonic() < until:
            time.sleep(0.25)
            found += drained(host, sampler, pid)
    return found


def drained(host: Host, sampler: Sampler, pid: int) -> list[Stack]:
    samples = sampler.drain()
    own = (samples.pid == pid) & (samples.tid == pid)
    rows, stack = np.unique(samples.stack[own], return_inverse=True)
    columns = {name: getattr(samples, name)[own] for name in ("time_monotonic_ns", "pid", "tid", "context")}
    located = locate(replace(samples, **columns).with_stacks(rows, stack), host.mappings, Kernel(), host.runtimes)
    ends, found = np.cumsum(located.depth), []
    for row, count in Counter(located.row.tolist()).items():
        frames = located.frames[ends[row] - located.depth[row] : ends[row]][::-1]
        names = [located.names[name] for name in located.name[frames].tolist()]
        found.append(Stack([Frame(*name[:3]) for name in names], count))
    return found


def own(stack: Stack, program: Path) -> list[str]:
    return [frame.function for frame in stack.frames if frame.file == str(program)]


def share(stacks: list[Stack], which: list[bool]) -> float:
    total = sum(stack.count for stack in stacks)
    return sum(stack.count for stack, counted in zip(stacks, which, strict=True) if counted) / max(total, 1)


def check_shares(watched: tuple[Host, Sampler], program: Path, node: Node, *flags: str) -> None:
    stacks = stacks_of(watched, node.path, *flags, str(program), "shares")
    what = f"Node {node.name} {' '.join(flags)}"
    calls = [own(stack, program) for stack in stacks]
    complete = [functions[:1] == ["main"] and functions.count("recurse") in (0, 61) for functions in calls]
    print(Counter(stack.frames[0].function for stack in stacks if not stack.whole))
    compare_share(f"whole stacks of {what}", 1, share(stacks, [stack.whole for stack in stacks]), 0.01)
    compare_share(f"60 recursions of {what}", 1, share(stacks, complete), 0.02)
    working = share(stacks, [bool({"sixty", "thirty", "ten"} & set(functions)) for functions in calls])
    assert working > 0.9
    for name, expected in {"sixty": 0.6, "thirty": 0.3, "ten": 0.1}.items():
        seen = share(stacks, [name in functions for functions in calls]) / working
        compare_share(f"{name} of {what}", expected, seen, 0.04)
    lines = {(frame.function, frame.line) for stack in stacks for frame in stack.frames if frame.file == str(program)}
    assert {("burn", 2), ("sixty", 3), ("recurse", 7), ("main", 26)} <= lines


def check_callbacks(watched: tuple[Host, Sampler], program: Path, node: Node, *flags: str) -> None:
    stacks = stacks_of(watched, node.path, *flags, str(program), "callbacks")
    what = f"Node {node.name} {' '.join(flags)}"
    calls = [own(stack, program) for stack in stacks]
    right = [
        functions[:1] == ["main"] and all(callee in CALLS[caller] for caller, callee in itertools.pairwise(functions))
        for functions in calls
    ]
    print(Counter(" ".join(functions) for functions, good in zip(calls, right, strict=True) if not good))
    compare_share(f"whole stacks of {what}", 1, share(stacks, [stack.whole for stack in stacks]), 0.01)
    compare_share(f"right stacks of {what}", 1, share(stacks, right), 0.02)
    assert {"compare", "toJSON", "replacer", "thrower", "catcher", "get total"} <= {
        name for each in calls for name in each
    }


def check_lines(watched: tuple[Host, Sampler], node: Node, compiler: str, *flags: str) -> dict[str, float]:
    """Returns the shares of functions that are called or inlined."""
    no_maglev = ["--no-maglev"] if node.major >= 20 and compiler != "Maglev" else []
    stacks = stacks_of(watched, node.path, *COMPILERS[compiler], *no_maglev, *flags, str(LINES), samples=2 * SAMPLES)
    what = f"Node {node.name}, {compiler} {' '.join(flags)}"
    compare_share(f"whole stacks of {what}", 1, share(stacks, [stack.whole for stack in stacks]), 0.01)
    frames = [[frame for frame in stack.frames if frame.file == str(LINES)] for stack in stacks]
    called = [[(frame.function, frame.line) for frame in own[1:]] for own in frames]
    print(Counter({str(own): stack.count for own, stack in zip(called, stacks, strict=True)}).most_common(20))
    first, second = (share(stacks, [own[:1] in lines for own in called]) for lines in (FIRST_LOOP, SECOND_LOOP))
    whole = share(stacks, [own[:1] and own[0][0] == "loops" for own in called])
    compare_share(f"lines of loops of {what}", 1, (first + second) / whole, 0.02)
    # From Node 24 on, Maglev notes fewer positions: what it inlined may have the line of the statement before.
    rough = compiler == "Maglev" and node.major >= 24
    compare_share(f"the first loop of {what}", 0.7, first / (first + second), 0.08 if rough else 0.04)
    seven, three = (share(stacks, [name in dict(own) for own in called]) for name in ("seven", "three"))
    compare_share(f"seven of {what}", 0.7, seven / (seven + three), 0.05)
    known = share(stacks, [len(own) < 2 or (own[0], own[1][0]) in CALL_LINES for own in called])
    if not rough:
        compare_share(f"lines of calls of {what}", 1, known, 0.02)
    working = share(stacks, [own[-1:] == [("work", 2)] for own in called])
    return {"loops": whole, "seven": seven, "three": three, "work": working}


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("node", DEFAULT, ids=lambda node: node.name)
def test_lines_have_their_shares_whoever_compiled_them(
    watched: tuple[Host, Sampler], node: Node, compiler: str
) -> None:
    check_lines(watched, node, compiler)


@pytest.mark.parametrize("node", DEFAULT, ids=lambda node: node.name)
def test_inlined_functions_have_the_shares_that_they_have_where_nothing_is_inlined(
    watched: tuple[Host, Sampler], node: Node
) -> None:
    inlined, called = (
        check_lines(watched, node, "TurboFan"),
        check_lines(watched, node, "TurboFan", "--no-turbo-inlining"),
    )
    for name in ("seven", "three"):
        expected = called[name] / (called["seven"] + called["three"])
        compare_share(f"{name}, inlined", expected, inlined[name] / (inlined["seven"] + inlined["three"]), 0.04)
    assert inlined["work"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("node", OTHERS, ids=lambda node: node.name)
def test_every_version_shows_its_lines(watched: tuple[Host, Sampler], node: Node, compiler: str) -> None:
    if compiler == "Maglev" and node.major < 20:
        pytest.skip("it has no Maglev")
    check_lines(watched, node, compiler)


@pytest.mark.parametrize("node", DEFAULT, ids=lambda node: node.name)
def test_functions_have_their_shares_and_callers(watched: tuple[Host, Sampler], program: Path, node: Node) -> None:
    check_shares(watched, program, node)


@pytest.mark.parametrize("node", DEFAULT, ids=lambda node: node.name)
def test_callbacks_show_below_the_builtins_that_call_them(
    watched: tuple[Host, Sampler], program: Path, node: Node
) -> None:
    check_callbacks(watched, program, node)


@pytest.mark.soak
@pytest.mark.parametrize("node", OTHERS, ids=lambda node: node.name)
def test_every_version_shows_its_functions(watched: tuple[Host, Sampler], program: Path, node: Node) -> None:
    check_shares(watched, program, node)
    check_callbacks(watched, program, node)


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("node", nodes(), ids=lambda node: node.name)
def test_code_of_every_tier_shows_its_functions(
    watched: tuple[Host, Sampler], program: Path, node: Node, mode: str
) -> None:
    if mode == "--maglev" and node.major < 20:
        pytest.skip("it has no Maglev")
    check_shares(watched, program, node, mode)
    check_callbacks(watched, program, node, mode)
