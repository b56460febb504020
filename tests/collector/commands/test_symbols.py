"""icestream symbols: what is uploaded, what is not and why."""

import subprocess
import time
from pathlib import Path

import pytest

from collector.symbols.name_kinds import DEBUG_INFO, UPLOADED
from icestream import cli
from icestream.settings import KafkaSettings
from icestream.symbols.symcache import SymCaches
from icestream.topics import SYMBOLS
from icestream.v1.symbols_pb2 import SymbolFile
from tests.pipeline.reading import follow
from tests.waiting import PATIENCE_S

SOURCE = b"int answer(int x) { return x * 42; }\nint main(void) { return answer(1); }\n"


def build(path: Path, *flags: str) -> Path:
    subprocess.run(["gcc", "-g", *flags, "-x", "c", "-", "-o", path], input=SOURCE, check=True)
    return path


def stripped(path: Path) -> Path:
    without = path.with_name(f"{path.name}-stripped")
    subprocess.run(["strip", path, "-o", without], check=True)
    return without


def symbols(*args: str | Path) -> int:
    return cli.main(["symbols", *map(str, args)])


def test_an_upload_names_the_program_on_every_broker(
    broker: KafkaSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = build(tmp_path / "program")
    assert symbols("upload", "--kafka", broker.kafka, program, stripped(program)) == 0
    out = capsys.readouterr().out
    assert f"[1/1] {program}: gnu:" in out
    assert "1 uploaded, 0 stripped, 0 failed" in out
    reading = follow(broker, SYMBOLS)
    deadline = time.monotonic() + PATIENCE_S
    message = None
    while message is None and time.monotonic() < deadline:
        message = reading.poll(0.5)
    assert message is not None
    file = SymbolFile.FromString(message.value() or b"")
    reading.close()
    assert (message.key(), file.host_id, file.version) == (file.build_id.encode(), "", UPLOADED + DEBUG_INFO)
    caches = SymCaches(tmp_path / "cache")
    of_a_host = SymbolFile()
    of_a_host.CopyFrom(file)
    of_a_host.version = DEBUG_INFO
    assert caches.add(of_a_host)
    assert caches.add(file)  # an upload replaces names of the same kind that a host sent
    found = caches.get(file.build_id)
    assert found is not None
    answer = next(
        line for line in subprocess.check_output(["nm", program], text=True).splitlines() if " answer" in line
    )
    lines = found.lookup(int(answer.split()[0], 16), str(program))
    assert [(line.function, line.line) for line in lines] == [("answer", 1)]


def test_an_upload_to_the_symbol_store_leaves_the_place_in_kafka(
    in_process_broker: KafkaSettings, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    program = build(tmp_path / "program")
    assert symbols("upload", "--kafka", in_process_broker.kafka, "--symbol-store", store, program) == 0
    assert len(list(store.rglob("*.symcache.zst"))) == 1


def test_a_dry_run_needs_no_kafka_and_says_what_it_would_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = build(tmp_path / "program")
    assert symbols("upload", "--dry-run", "--kafka", "127.0.0.1:1", program) == 0
    out = capsys.readouterr().out
    assert "debug information" in out
    assert "1 to upload" in out


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: stripped(build(folder / "a")), "stripped"),
        (lambda folder: build(folder / "a", "-Wl,--build-id=none"), "no build ID"),
        (lambda folder: build(folder / "a.o", "-c"), "not linked"),
        (lambda folder: Path(__file__), "not an ELF file"),
        (lambda folder: folder / "gone", "no such file"),
        (lambda folder: folder, "--recursive"),
    ],
)
def test_what_cannot_be_uploaded_is_said_and_the_rest_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: "object", reason: str
) -> None:
    assert callable(make)
    bad = make(tmp_path)
    good = build(tmp_path / "good", "-O2")
    assert symbols("upload", "--dry-run", bad, good) == 1
    out = capsys.readouterr().out
    assert any(line.startswith(f"{bad}: ") and reason in line for line in out.splitlines())
    assert "1 to upload" in out


def test_in_folders_other_files_are_passed_over_and_the_best_file_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    program = build(inner / "program")
    stripped(program)
    stripped(build(tmp_path / "only", "-O1")).rename(tmp_path / "a" / "nameless")
    (inner / "notes.txt").write_text("nothing")
    (inner / "again").symlink_to(tmp_path)
    assert symbols("upload", "--recursive", "--dry-run", tmp_path / "a") == 0
    out = capsys.readouterr().out
    assert f"[1/1] {program}" in out
    assert "1 to upload, 1 stripped, 0 failed" in out


def test_a_stripped_program_leads_to_the_debug_file_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, debug = build(tmp_path / "program"), tmp_path / "program.debug"
    subprocess.run(["objcopy", "--only-keep-debug", program, debug], check=True)
    subprocess.run(["objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", program], check=True)
    assert symbols("inspect", program) == 0
    assert "debug information" in capsys.readouterr().out


def test_kafka_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collector.commands.symbols.TIMEOUT_S", 1.0)
    assert symbols("upload", "--kafka", "127.0.0.1:1", build(tmp_path / "program")) == 1
    assert "Kafka at 127.0.0.1:1" in capsys.readouterr().err
