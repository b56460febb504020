"""Real programs on this kernel, from perf_event to merged profiles.

CI runs them on the in-process broker, which takes less CPU beside what is profiled; `make soak` runs all on both.
tests/collector/delivery/test_publisher.py shows in CI, on both, that what a killed collector left arrives.
"""

import gzip
import os
import random
import shutil
import signal
import subprocess
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from icestream.columns import packed
from icestream.pprof.profile_pb2 import Profile
from icestream.settings import KafkaSettings
from icestream.topics import RAW
from icestream.v1.raw_pb2 import RawBatch
from tests.pipeline.reading import messages
from tests.pipeline.running import Pipeline, between
from tests.waiting import wait_until

pytestmark = [pytest.mark.pipeline, pytest.mark.ebpf]

EXECUTABLE = f"known-{os.getpid()}"  # a collector also sees what the tests of another process run
SELECTOR = f'{{executable="{EXECUTABLE}"}}'
Known = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def known(tmp_path: Path) -> Iterator[Known]:
    """Starts the program of known functions, with arguments. It has a build ID of its own: symbols are asked for by it,
    and another test's file may be gone."""
    program = tmp_path / EXECUTABLE
    source = Path(__file__).with_name("known.c")
    build_id = f"-Wl,--build-id=0x{uuid.uuid4().hex}"
    subprocess.run(["gcc", "-O0", "-g", "-rdynamic", build_id, "-o", program, source], check=True)
    running: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        running.append(subprocess.Popen([program, *arguments]))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


ON_ONE_BROKER = pytest.mark.parametrize(
    "broker", ["in_process_broker", pytest.param("apache_kafka", marks=pytest.mark.soak)], indirect=True
)


@ON_ONE_BROKER
def test_known_functions_have_their_shares_in_every_format(pipeline: Pipeline, known: Known, tmp_path: Path) -> None:
    begin = time.time_ns()
    pipeline.start("collect", "--frequency", "1999")
    pipeline.wait(lambda: messages(pipeline.settings, RAW), bool)  # the program would use a CPU until it samples
    process = known()
    end = time.time_ns() + 600 * 10**9

    def named() -> Counter[str]:
        return collapsed(pipeline, begin, end)

    def named_after_work() -> Counter[str]:
        work_for(process, cpu_s=0.1)
        return named()

    def operations_after_work() -> Counter[str]:
        work_for(process, cpu_s=0.1)
        return by_operation(pipeline, begin, end)

    # 2000 samples: 4 points are four times the standard deviation of a share. While they are not found, it works now
    # and then only: the parts that it waits for need the CPUs.
    work_for(process, cpu_s=1.2)
    pipeline.wait(named_after_work, lambda found: found["three_quarters"] > 0.75e9)
    pipeline.wait(operations_after_work, lambda found: found["GET /known"] > 0)
    process.kill()
    process.wait()
    pipeline.stop("collect")
    pipeline.settle()
    functions, total = named(), pipeline.total(begin, end, SELECTOR)
    assert_shares(functions, total)

    tree = pipeline.get("/api/v1/merge", selector=SELECTOR, format="tree", **between(begin, end))
    assert tree["total"] == total

    path = tmp_path / "profile.pb.gz"
    with open(path, "wb") as file:
        file.write(fetch(pipeline, "pprof", begin, end))
    profile = Profile.FromString(gzip.decompress(path.read_bytes()))
    assert sum(sample.value[-1] for sample in profile.sample) == total
    by_second_reader = pprof_top(path)
    assert by_second_reader["main"] == pytest.approx(functions["main"], rel=0.01)
    assert_shares(by_second_reader, total)

    timeline = pipeline.get("/api/v1/timeline", selector=SELECTOR, **between(begin, end))
    assert sum(sum(group["values"]) for group in timeline["groups"]) == total

    # Those before the collector had looked at the program belong to no operation.
    operations = by_operation(pipeline, begin, end)
    assert operations["GET /known"] + operations[""] == total
    selector = f'{{executable="{EXECUTABLE}", operation="GET /known"}}'
    assert pipeline.total(begin, end, selector) == operations["GET /known"] > 0


@ON_ONE_BROKER
def test_symbols_that_come_late_name_what_was_stored(pipeline: Pipeline, known: Known) -> None:
    pipeline.kill("streams")  # so that nobody asks for symbols while a collector could answer
    pipeline.start("collect", "--frequency", "399")
    pipeline.wait(lambda: messages(pipeline.settings, RAW), bool)
    process = known()
    pipeline.wait(lambda: raw_total(pipeline.settings, process.pid), lambda raw: raw > 1e9)
    begin = time.time_ns()  # by now its unwinding table is loaded; before, its stacks had no callers
    pipeline.wait(lambda: raw_total(pipeline.settings, process.pid), lambda raw: raw > 1.5e9)
    pipeline.stop("collect")
    end = time.time_ns()
    process.send_signal(signal.SIGSTOP)  # until a collector is there again, which opens only files that it saw itself
    pipeline.start("streams")

    def functions() -> Counter[str]:
        return collapsed(pipeline, begin, end)

    pipeline.wait(functions, bool)
    pipeline.settle()
    unnamed = functions()
    assert "three_quarters" not in unnamed
    assert f"[{EXECUTABLE}]" in unnamed

    pipeline.start("collect")
    process.send_signal(signal.SIGCONT)
    named = pipeline.wait(functions, lambda found: bool(found) and f"[{EXECUTABLE}]" not in found)
    whole = named["three_quarters"] + named["one_quarter"]
    assert named["main"] == pytest.approx(whole, rel=0.05)  # it has hardly any of its own


# In CI, tests/collector/test_agent.py kills a collector again and again, and compares the batches that it had cut.
@pytest.mark.soak
def test_totals_agree_with_the_cpu_clock_when_the_collector_is_killed(pipeline: Pipeline, known: Known) -> None:
    """What a killed collector had cut into a batch arrives once; only what the kernel still held is gone."""
    begin = time.time_ns()
    process = known("now and then")
    killed = 0
    for _ in range(2):
        pipeline.start("collect", "--frequency", "499")
        pipeline.wait(lambda: raw_total(pipeline.settings, process.pid), lambda raw, before=killed: raw > before)  # type: ignore[misc]
        time.sleep(random.uniform(0, 1))  # at any moment between two batches
        pipeline.kill("collect")
        killed = raw_total(pipeline.settings, process.pid)
    pipeline.start("collect")
    pipeline.wait(lambda: raw_total(pipeline.settings, process.pid), lambda raw: raw > killed)
    pipeline.stop("collect")
    process.kill()
    end = time.time_ns() + 60 * 10**9
    raw = raw_total(pipeline.settings, process.pid)
    pipeline.wait(lambda: pipeline.total(begin, end, SELECTOR), lambda total: total >= raw)
    pipeline.settle()
    assert pipeline.total(begin, end, SELECTOR) == raw > 0


def work_for(process: subprocess.Popen[bytes], cpu_s: float) -> None:
    """Lets a program use so much CPU, and stops it."""
    clock = ~process.pid << 3 | 2  # clock_getcpuclockid(3)
    until = time.clock_gettime(clock) + cpu_s
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: time.clock_gettime(clock) > until)
    process.send_signal(signal.SIGSTOP)


def raw_total(settings: KafkaSettings, pid: int) -> int:
    """CPU of a process by the raw batches in the topic, each batch ID once."""
    totals: dict[bytes, int] = {}
    for message in messages(settings, RAW):
        batch = RawBatch.FromString(message.value() or b"")
        samples = int((packed.column(batch, "sample_pid") == pid).sum())
        totals[batch.id.SerializeToString(deterministic=True)] = samples * batch.period
    return sum(totals.values())


def collapsed(pipeline: Pipeline, begin: int, end: int) -> Counter[str]:
    """Cumulative nanoseconds of each function."""
    text = pipeline.get("/api/v1/merge", selector=SELECTOR, format="collapsed", **between(begin, end))
    functions: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, value = line.rpartition(" ")
        for function in set(stack.split(";")):
            functions[function] += int(value)
    return functions


def by_operation(pipeline: Pipeline, begin: int, end: int) -> Counter[str]:
    timeline = pipeline.get("/api/v1/timeline", selector=SELECTOR, sum_by="operation", **between(begin, end))
    return Counter({group["labels"]["operation"]: sum(group["values"]) for group in timeline["groups"]})


def assert_shares(functions: Counter[str], total: int) -> None:
    """75 % and 25 %, within 4 points."""
    assert functions["three_quarters"] / total == pytest.approx(0.75, abs=0.04)
    assert functions["one_quarter"] / total == pytest.approx(0.25, abs=0.04)


def fetch(pipeline: Pipeline, output_format: str, begin: int, end: int) -> bytes:
    address = pipeline.address("/api/v1/merge", selector=SELECTOR, format=output_format, **between(begin, end))
    with urllib.request.urlopen(address) as answer:
        return bytes(answer.read())


def pprof_top(path: Path) -> Counter[str]:
    """Cumulative nanoseconds of each function, as Go's pprof reads the file."""
    if shutil.which("go") is None:
        if os.environ.get("CI"):
            pytest.fail("the second reader of pprof, Go, is not installed: make setup installs it")
        pytest.skip("Go is not installed: no second reader of pprof")
    out = subprocess.run(
        ["go", "tool", "pprof", "-top", "-cum", "-unit=ns", "-nodecount=10000", "-nodefraction=0", path],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    functions: Counter[str] = Counter()
    lines = out.splitlines()
    for line in lines[next(i for i, text in enumerate(lines) if "flat%" in text) + 1 :]:
        columns = line.split(None, 5)
        functions[columns[5].replace(" (inline)", "")] += int(float(columns[3].removesuffix("ns")))
    return functions
