"""`icestream collect` as a process on this kernel: batches, symbols on request, and no loss when it is killed."""

import itertools
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import zstandard
from confluent_kafka import Consumer
from symbolic.symcache import SymCache

from icestream.columns.packed import column
from icestream.http.metrics import parse_metrics
from icestream.kafka.clients import producer
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW, SYMBOL_REQUESTS, SYMBOLS
from icestream.v1.activity_pb2 import ActivityBatch
from icestream.v1.raw_pb2 import RawBatch
from icestream.v1.symbols_pb2 import SymbolFile, SymbolRequest
from tests.collector.activity.flooding import datagram, flooding, open_folder, send
from tests.collector.hanging import USER, hanging_memory
from tests.pipeline.reading import follow, messages
from tests.ports import free_port
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.ebpf
PROGRAMS = Path(__file__).parent / "programs"
ICESTREAM = Path(sys.executable).parent / "icestream"
HOST = "the-host"


def collect(broker: KafkaSettings, folder: Path, *flags: str) -> subprocess.Popen[bytes]:
    command = [
        ICESTREAM, "collect", "--kafka", broker.kafka, "--host-id", HOST,
        "--spool", f"{folder}/spool", "--activity-socket", f"{folder}/activity.sock", "--metrics-listen", "",
        "--interval", "1", "--frequency", "199", *flags,
    ]  # fmt: skip
    return subprocess.Popen(command, cwd=folder)


def samples(process: subprocess.Popen[bytes]) -> bool:
    """Whether every CPU has its two events: the one that samples, and the one that tells of processes."""
    opened = []
    for fd in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            opened.append(os.readlink(fd))
    return sum("perf_event" in name for name in opened) >= 2 * (os.cpu_count() or 1)


@contextmanager
def collecting(broker: KafkaSettings, folder: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """A collector that samples."""
    process = collect(broker, folder, *flags)
    try:
        wait_until(lambda: samples(process))
        yield process
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


@pytest.fixture
def reader(in_process_broker: KafkaSettings) -> Iterator[Consumer]:
    reading = follow(in_process_broker, RAW, SYMBOLS)
    yield reading
    reading.close()


def batches(reading: Consumer, seconds: float) -> Iterator[RawBatch]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        message = reading.poll(0.2)
        if message is not None and message.error() is None and message.topic() == RAW:
            yield RawBatch.FromString(message.value() or b"")


def work(busy: Path, milliseconds: int, **environ: str) -> int:
    """Runs the busy program for so long; returns its process ID."""
    command, pipe = [busy, "1", str(milliseconds), "3"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=os.environ | environ) as run:
        run.communicate(b"\n")
        return run.pid


def ask(broker: KafkaSettings, reading: Consumer, build_id: str, file: str) -> tuple[SymCache, int]:
    asking = producer(broker)
    request = SymbolRequest(build_id=build_id, host_id=HOST, file=file, attempt=1, requested_unix_nano=time.time_ns())
    asking.produce(SYMBOL_REQUESTS, request.SerializeToString(), build_id)
    asking.flush(PATIENCE_S)
    chunks: dict[int, SymbolFile] = {}
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = reading.poll(0.2)
        if message is not None and message.error() is None and message.topic() == SYMBOLS:
            answer = SymbolFile.FromString(message.value() or b"")
            assert not answer.error
            if answer.build_id == build_id:
                chunks[answer.chunk] = answer
                if len(chunks) == answer.chunks:
                    break
    data = zstandard.ZstdDecompressor().decompress(b"".join(chunks[i].data for i in range(len(chunks))))
    return SymCache.from_bytes(data), chunks[0].load_address


@pytest.mark.alone
def test_a_busy_program_is_profiled_by_name(
    in_process_broker: KafkaSettings, reader: Consumer, tmp_path: Path, busy: Path
) -> None:
    with collecting(in_process_broker, tmp_path):
        pid = work(busy, 2000)
        leaves: Counter[tuple[str, int]] = Counter()  # nanoseconds: on a busy machine, the collector may sample less
        services = set()
        for batch in batches(reader, PATIENCE_S):
            build_ids = [mapping.build_id for mapping in batch.mappings]
            frames, depth = column(batch, "stack_frames"), column(batch, "stack_depth")
            starts = depth.cumsum() - depth
            for i in (column(batch, "sample_pid") == pid).nonzero()[0].tolist():
                stack = batch.sample_stack[i]
                leaf = int(frames[starts[stack]])
                leaves[build_ids[batch.location_mapping[leaf]], batch.location_address[leaf]] += batch.period
                services |= {v.value for v in batch.series[batch.sample_series[i]].labels if v.name == "service"}
            # Where programs share the CPUs, the scheduler's slices and the sampling period are in step for a while: the
            # sum may be a fifth off. That sums agree with clocks is tested where nothing else runs.
            if sum(leaves.values()) > 0.75 * 2 * 10**9:
                break
        assert services == {"busy"}
        build_id = max(leaves, key=lambda leaf: leaves[leaf])[0]
        symcache, load_address = ask(in_process_broker, reader, build_id, str(busy))
        names: Counter[str] = Counter()
        for (found, address), count in leaves.items():
            if found == build_id:
                for line in symcache.lookup(address - load_address)[:1]:  # stubs of the linker have no name
                    names[line.symbol] += count
    total = sum(leaves.values())
    assert total == pytest.approx(2 * 10**9, rel=0.3)
    # Four times the standard deviation of a share of 360 samples.
    assert names["three_quarters"] / total == pytest.approx(0.75, abs=0.09)
    assert names["one_quarter"] / total == pytest.approx(0.25, abs=0.09)


def test_killed_again_and_again_every_batch_that_was_cut_arrives(
    in_process_broker: KafkaSettings, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    for pause in (0.7, 0.3):
        left = set(spool.glob("*.messages"))
        process = collect(in_process_broker, tmp_path, "--interval", "0.2", "--settle", "0.02")
        wait_until(lambda left=left: bool(set(spool.glob("*.messages")) - left))  # type: ignore[misc]
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def all_batches() -> list[RawBatch]:
        return [RawBatch.FromString(message.value() or b"") for message in messages(in_process_broker, RAW)]

    with collecting(in_process_broker, tmp_path, "--interval", "0.2"):
        # Until the last one publishes its own: what it found in the spool goes first.
        wait_until(lambda: len({batch.id.started_unix_nano for batch in all_batches()}) == 3)
    found = all_batches()
    parts: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for batch in found:
        parts[batch.id.started_unix_nano][batch.id.sequence].add(batch.id.part)
        assert batch.id.collector == HOST
    assert len(parts) == 3
    for sequences in parts.values():
        assert sorted(sequences) == list(range(1, len(sequences) + 1))
    assert list(spool.glob("*.messages")) == []


def test_terminated_it_sends_its_last_window_and_ends_soon(
    in_process_broker: KafkaSettings, reader: Consumer, tmp_path: Path, busy: Path
) -> None:
    process = collect(in_process_broker, tmp_path, "--interval", "60")
    wait_until(lambda: samples(process))
    pid = work(busy, 2000)  # for half a second it may read /proc before it samples
    process.terminate()
    assert process.wait(45) == 0  # before its window would be over
    assert any(pid in column(batch, "sample_pid") for batch in batches(reader, PATIENCE_S))


def test_a_broker_that_is_away_holds_up_nothing(tmp_path: Path) -> None:
    with collecting(KafkaSettings(kafka="127.0.0.1:1"), tmp_path, "--interval", "0.2"):
        wait_until(lambda: len(list((tmp_path / "spool").glob("*.messages"))) >= 3)
    assert len(list((tmp_path / "spool").glob("*.messages"))) >= 3


def test_it_says_how_it_does(in_process_broker: KafkaSettings, tmp_path: Path) -> None:
    port = free_port()
    values: dict[tuple[str, ...], float] = {}

    def sends() -> bool:
        try:
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S).read().decode()
        except OSError:  # it samples already, but does not listen yet
            return False
        samples = itertools.chain(*parse_metrics(text).values())
        values.update({(sample.name, *sample.labels.values()): sample.value for sample in samples})
        return values.get(("icestream_collector_sent_bytes_total", RAW), 0) > 0

    with collecting(in_process_broker, tmp_path, "--metrics-listen", f"127.0.0.1:{port}"):
        wait_until(sends)
        ready = urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE_S).read()
    assert b"ready" in ready
    assert values["icestream_collector_samples_total",] > 0
    assert values["icestream_collector_frequency_hertz",] == 199
    assert 0 < values["icestream_collector_cpu_seconds_total",] < 20
    assert values["icestream_collector_thread_cpu_seconds_total", "build"] > 0
    assert values["icestream_collector_cpu_budget_percent",] > 0
    assert values["icestream_collector_activity_received_total", "malformed"] == 0


def test_a_flood_of_activity_by_another_user_takes_nothing_from_a_victims_requests(
    in_process_broker: KafkaSettings,
) -> None:
    reading = follow(in_process_broker, ACTIVITY)
    with open_folder() as folder, collecting(in_process_broker, folder), flooding(folder / "activity.sock"):
        for _ in range(40):
            assert send(folder / "activity.sock", datagram(3))
            time.sleep(0.05)
    end, rows, flood_rows = time.monotonic() + PATIENCE_S, 0, 0
    while rows < 3 * 40 and time.monotonic() < end:
        message = reading.poll(0.2)
        if message is not None and message.error() is None:
            pids = column(ActivityBatch.FromString(message.value() or b""), "interval_pid")
            rows += int((pids == os.getpid()).sum())
            flood_rows += int((pids != os.getpid()).sum())
    reading.close()
    assert rows == 3 * 40
    assert flood_rows < 1_000_000  # it sent a hundred millions


def test_a_process_whose_memory_does_not_answer_takes_nothing_from_others_and_not_the_end(
    in_process_broker: KafkaSettings, reader: Consumer, tmp_path: Path, busy: Path
) -> None:
    port = free_port()
    with hanging_memory("page", USER + 1), hanging_memory("lock") as there_before:
        with collecting(in_process_broker, tmp_path, "--metrics-listen", f"127.0.0.1:{port}") as collector:
            assert services_of(reader, work(busy, 6000, OTEL_SERVICE_NAME="first")) == {
                "first"
            }  # hangs take a second each
            with hanging_memory("lock", USER + 2) as later:
                wait_until(lambda: hanging_processes(port) == 3)
                assert services_of(reader, work(busy, 6000, OTEL_SERVICE_NAME="second")) == {"second"}
                assert services_of(reader, later.pid) == {"hanging_memory"}
                assert b'"ready"' in urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").read()
        assert collector.returncode == 0
        assert services_of(reader, there_before.pid) == {"hanging_memory"}


def hanging_processes(port: int) -> float:
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S).read().decode()
    (sample,) = parse_metrics(text)["icestream_collector_hanging_processes"]
    return sample.value


def services_of(reading: Consumer, pid: int) -> set[str]:
    """The services of the first samples of a process."""
    for batch in batches(reading, PATIENCE_S):
        series = [batch.sample_series[i] for i in (column(batch, "sample_pid") == pid).nonzero()[0].tolist()]
        if series:
            return {label.value for one in series for label in batch.series[one].labels if label.name == "service"}
    return set()


# Each starts a collector. CI has one that fails before the eBPF programs are loaded, and one after.
@pytest.mark.parametrize(
    ("flags", "says", "code"),
    [
        (["--frequency", "0"], "frequency: expected 1 to", 2),
        pytest.param(["--interval", "0"], "interval: expected", 2, marks=pytest.mark.soak),
        pytest.param(["--loader", "magic"], "unknown loader", 1, marks=pytest.mark.soak),
        pytest.param(["--activity-socket", "/etc/passwd"], "is no socket", 1, marks=pytest.mark.soak),
        (["--metrics-listen", "nonsense"], "metrics", 1),
    ],
)
def test_what_cannot_work_is_one_line_and_an_exit_code(tmp_path: Path, flags: list[str], says: str, code: int) -> None:
    command = [
        ICESTREAM, "collect", "--kafka", "127.0.0.1:1", "--metrics-listen", "",
        "--spool", f"{tmp_path}/spool", "--activity-socket", f"{tmp_path}/a.sock", *flags,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == code
    assert says in done.stderr.splitlines()[-1]
    assert len(done.stderr.splitlines()) == 1
