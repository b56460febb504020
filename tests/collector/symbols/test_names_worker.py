"""The process that reads the names in files of strangers has no rights, and its answers are not trusted."""

import hashlib
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.elf import identity
from collector.guest.confined_jobs import NOT_CONFINED
from collector.symbols import names_worker
from collector.symbols.builder import SymbolBuilder
from collector.symbols.file_names import best, make
from collector.symbols.name_kinds import DEBUG_INFO, SYMBOL_TABLE
from collector.symbols.names_jobs import NamesError
from collector.symbols.names_worker import NamesWorker, WorkerError
from collector.symbols.symbol_files import SymbolFiles
from tests.collector.activity.flooding import ATTACKER

pytestmark = pytest.mark.slow  # most tests start processes that read files, which takes half a second each

TAKEN_OVER = """
import os, socket, sys
from collector.guest.confined_jobs import ChildLimits, serve
from collector.symbols.names_jobs import *
def answer(job, descriptors):
    if job[:1] == BEST:
        return BEST + KIND.pack(3)
    size = os.write(descriptors[1], b"forged")
    {}
sys.exit(serve(answer, ChildLimits(1 << 30, 1 << 30, 60, 60.0)))
"""
LIES = [
    "return b''",
    "return b'x'",
    "return job[:1]",
    "return job[:1] + BUILT.pack(3, 0, 1 << 40)",
    "return job[:1] + BUILT.pack(3, 0, 0)",
    "os._exit(0)",
    "os.kill(os.getpid(), 9)",
    "import mmap; answer.kept = mmap.mmap(descriptors[1], size); return job[:1] + BUILT.pack(3, 0, size)",
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("names") / "program"
    subprocess.run(["gcc", "-g", "-x", "c", "-", "-o", path], input=b"int main(void) { return 0; }", check=True)
    return path


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[SymbolBuilder]:
    made = SymbolBuilder("host", str(tmp_path / "store"), SymbolFiles())
    yield made
    made.end_children()


def build_id(path: Path) -> str:
    with path.open("rb") as file:
        return identity.read_file(file.fileno()).build_id


def test_while_files_are_read_the_process_has_no_capability_and_is_under_seccomp(
    builder: SymbolBuilder, program: Path
) -> None:
    [answer] = builder.answer(build_id(program), str(program))
    assert (answer.error, answer.version) == ("", DEBUG_INFO)
    assert builder._worker
    lines = Path(f"/proc/{builder._worker.pid}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    assert {int(status[each], 16) for each in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
    assert (status["Seccomp"].strip(), status["NoNewPrivs"].strip()) == ("2", "1")


@pytest.mark.ebpf  # files of other users need root
def test_a_program_that_only_its_user_may_read_has_names(builder: SymbolBuilder, program: Path, tmp_path: Path) -> None:
    """The process that reads the names could not open it."""
    private = tmp_path / "private"
    private.write_bytes(program.read_bytes())
    private.chmod(0o700)
    os.chown(private, ATTACKER, ATTACKER)
    [answer] = builder.answer(build_id(private), str(private))
    assert (answer.error, answer.version) == ("", DEBUG_INFO)


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_takes_the_process_over_costs_its_own_names(
    builder: SymbolBuilder, program: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(names_worker, "COMMAND", ["-c", TAKEN_OVER.format(lie)])
        [answer] = builder.answer(build_id(program), str(program))
    assert answer.error == "the symbols take more memory or time than is allowed"
    [answer] = builder.answer(build_id(program), str(program))
    assert (answer.error, answer.version) == ("", DEBUG_INFO)


def test_what_is_stored_is_what_was_hashed_whatever_the_process_writes_later(
    monkeypatch: pytest.MonkeyPatch, program: Path
) -> None:
    """It keeps the descriptor of its first answer, and writes into it before each later one."""
    later = (
        "answer.kept = getattr(answer, 'kept', None) or os.dup(descriptors[1])\n"
        "    try: os.pwrite(answer.kept, os.urandom(6), 0)\n"
        "    except OSError: pass\n"
        "    return job[:1] + BUILT.pack(3, 0, size)"
    )
    monkeypatch.setattr(names_worker, "COMMAND", ["-c", TAKEN_OVER.format(later)])
    process, jobs = names_worker.start()
    with jobs, program.open("rb") as file:
        worker = NamesWorker(jobs)
        first = worker.make(file.fileno(), SYMBOL_TABLE)
        before = hashlib.sha256(first.symcache).hexdigest()
        worker.make(file.fileno(), SYMBOL_TABLE)
        assert hashlib.sha256(first.symcache).hexdigest() == before
    process.kill()
    process.wait()


def test_where_the_process_cannot_be_confined_the_answer_says_so(
    builder: SymbolBuilder, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names_worker, "COMMAND", ["-c", f"raise SystemExit({NOT_CONFINED})"])
    [answer] = builder.answer(build_id(program), str(program))
    assert "CONFIG_SECCOMP_FILTER" in answer.error


def test_a_file_that_is_written_anew_once_its_sections_were_looked_at_has_no_empty_names(
    program: Path, tmp_path: Path
) -> None:
    """As far as it has come, the file has its headers and nothing else."""
    data = program.read_bytes()
    (sections_at,) = struct.unpack_from("<Q", data, 40)
    (tmp_path / "anew").write_bytes(data)
    with open(tmp_path / "anew", "rb+", buffering=0) as file:
        assert best(file.fileno()) == DEBUG_INFO
        os.pwrite(file.fileno(), bytes(sections_at - 1024), 1024)
        with pytest.raises(NamesError, match="names no function"):
            make(file.fileno(), DEBUG_INFO)


def test_a_process_that_is_gone_is_an_error(program: Path) -> None:
    process, jobs = names_worker.start()
    process.kill()
    process.wait()
    with jobs, program.open("rb") as file, pytest.raises(WorkerError):
        NamesWorker(jobs).best(file.fileno())
