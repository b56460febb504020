"""Processes whose memory does not answer cost a thread, and not the profile of the host."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from collector.activity import context_finder
from collector.activity.context_finder import ContextFinder
from collector.activity.tls_symbol import X86_64, TlsFile, TlsSymbol
from collector.labels import thread_labels
from collector.labels.environment import read_environment
from collector.labels.label_config import LabelConfig
from collector.labels.thread_labels import ThreadLabels
from collector.processes import memory, patience
from collector.processes.mapped_files import FileCache, FileIdentity, MappedFile, MapsEntry
from collector.processes.mapped_ranges import MappedRange
from collector.processes.mappings import ProcessMappings
from collector.processes.patience import MOST_HANGS
from collector.processes.process import Process, effective_user_of, namespace_owner_of, read_process
from collector.runtimes.python import code
from collector.runtimes.python.layout import layout
from collector.symbols.symbol_files import open_by_build_id
from icestream.v1.common_pb2 import Mapping
from tests.collector.hanging import USER, Hanging, hanging_memory
from tests.collector.labels.threads import labels
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.ebpf  # needs root, as they do
ME = os.getpid()
_NEW_USER_NAMESPACE = 0x10000000  # CLONE_NEWUSER


@pytest.fixture(autouse=True)
def strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of earlier tests are forgotten."""
    monkeypatch.setattr(memory, "_patience", memory._Patience(memory.GIVE_UP_S))


@pytest.fixture
def locked() -> Iterator[Hanging]:
    with hanging_memory("lock") as process:
        yield process


def soon(call: Callable[[], object]) -> object:
    """Returns what the call returns, or the OSError that it raises. Fails if it waits for what never comes."""
    results: list[object] = []

    def run() -> None:
        try:
            results.append(call())
        except OSError as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S / 10)
    assert results, "it waits for a process that does not answer"
    return results[0]


def entry(pid: int, path: str | Path) -> MapsEntry:
    return MapsEntry(pid, 0x1000, 0x2000, 0, 0, str(path))


def looks_for_thread_contexts(hanging: Hanging) -> object:
    """As if it had linked a library that has a thread-local variable."""
    symbol = TlsSymbol(context_finder.VARIABLE, X86_64, 0, 0, (), (hanging.page,), (), None)
    finder = ContextFinder(lambda key: None)
    finder._files["key"] = context_finder._Known(TlsFile(symbol))
    mapped = MappedRange(0, 4096, 0, MappedFile(Mapping.FILE, "key", "/lib"), "key", False, entry(hanging.pid, "/lib"))
    found = finder.find(hanging.pid, [mapped])
    assert found is not None
    return found.why


def process_of(pid: int) -> Process:
    process = read_process(pid)
    assert process is not None
    return process


LOOKS: dict[str, Callable[[Hanging], object]] = {
    "labels": lambda it: ThreadLabels("h", LabelConfig(with_command_line=True)).notice(process_of(it.pid)),
    "mappings": lambda it: ProcessMappings(FileCache()).notice(it.pid),
    "files": lambda it: FileCache().identify(entry(it.pid, it.program)),
    "symbols": lambda it: list(open_by_build_id("gnu:00", None, [entry(it.pid, it.program)], "")),
    "names of Python": lambda it: code.read(it.pid, layout(0x030B07F0, 0, b""), [it.page]),
    "thread contexts": looks_for_thread_contexts,
}


@pytest.mark.parametrize("look", LOOKS)
def test_nobody_waits_for_a_process_that_keeps_its_lock(locked: Hanging, look: str) -> None:
    soon(lambda: LOOKS[look](locked))
    assert memory.hangs(locked.pid)
    assert soon(lambda: memory.patiently(ME, lambda: "read")) == "read"


@pytest.mark.parametrize("look", ["labels", "names of Python", "thread contexts"])
def test_nobody_waits_for_a_page_that_never_comes(look: str) -> None:
    with hanging_memory("page") as paged:
        soon(lambda: LOOKS[look](paged))
        assert memory.hangs(paged.pid)
    wait_until(lambda: not memory.hangs(paged.pid))


def test_a_process_that_keeps_its_lock_hides_no_files_of_others_nor_of_its_own(locked: Hanging) -> None:
    files = FileCache()
    assert isinstance(soon(lambda: files.identify(entry(locked.pid, locked.program))), TimeoutError)
    assert isinstance(soon(lambda: files.identify(entry(ME, locked.program))), FileIdentity)
    assert isinstance(soon(lambda: files.identify(entry(locked.pid, locked.program))), FileIdentity)


def test_files_of_such_a_process_are_given_up_as_soon_as_its_memory_is(locked: Hanging) -> None:
    """However long a file system has to answer: others wait behind it."""
    files = FileCache(give_up_s=PATIENCE_S)
    assert isinstance(soon(lambda: files.identify(entry(locked.pid, locked.program))), TimeoutError)


def test_what_a_process_says_of_itself_is_read_once_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_labels, "_AGAIN_S", 0.0)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    known = ThreadLabels("h")
    with hanging_memory("lock") as late:
        soon(lambda: known.notice(process_of(late.pid)))
        assert labels(known, process_of(late.pid))["service"] == "hanging_memory"
        late.answer()
        wait_until(lambda: not memory.hangs(late.pid))
        soon(lambda: known.notice(process_of(late.pid)))
        assert labels(known, process_of(late.pid))["service"] == "shop"


def test_a_user_with_many_such_processes_costs_few_threads_and_the_others_nothing() -> None:
    with ExitStack() as running:
        several = [running.enter_context(hanging_memory("lock")) for _ in range(MOST_HANGS + 2)]
        ordinary, other = (running.enter_context(sleeping(user)) for user in (USER, USER + 1))
        threads = threading.active_count()
        for process in several:
            soon(lambda process=process: memory.patiently(process.pid, lambda: memory.take_lock(process.pid)))
        assert [memory.hangs(process.pid) for process in several] == [True] * MOST_HANGS + [False] * 2
        assert threading.active_count() <= threads + MOST_HANGS + 1
        assert isinstance(soon(lambda: memory.patiently(ordinary, lambda: "read")), TimeoutError)
        folder = f"/proc/{other}"
        assert soon(lambda: memory.patiently(other, lambda: read_environment(folder, [b"HOME"]))) == {"HOME": "/"}
        assert memory.why_blind() is None


def test_a_user_with_subordinate_ids_is_one_user() -> None:
    map_of_ids = f"0 {USER} 1\n1 100000 1000\n"
    with ExitStack() as running:
        first, second = (running.enter_context(in_user_namespace(map_of_ids, user)) for user in (1, 2))
        assert [effective_user_of(pid) for pid in (first, second)] == [100_000, 100_001]
        assert [namespace_owner_of(pid) for pid in (first, second, ME)] == [USER, USER, None]
        waiting = patience.Patience(0.1)
        for number in range(MOST_HANGS):
            with pytest.raises(TimeoutError):
                waiting.run(first, f"no path {number}", partial(time.sleep, 1), lambda late: None)
        with pytest.raises(TimeoutError, match="took too long"):
            waiting.run(second, "another path", lambda: "read", lambda late: None)
        assert waiting.run(ME, "another path", lambda: "read", lambda late: None) == "read"


def test_there_is_a_bound_for_all_users_and_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "MOST_HANGING", 2)
    with ExitStack() as running:
        for user in (USER, USER + 1):
            process = running.enter_context(hanging_memory("lock", user))
            assert not memory.answers(process.pid)
        assert isinstance(soon(lambda: memory.patiently(ME, lambda: "read")), TimeoutError)
        assert memory.why_blind()
    wait_until(lambda: memory.why_blind() is None)
    assert memory.answers(ME)


@contextmanager
def sleeping(user: int) -> Iterator[int]:
    with subprocess.Popen(["/bin/sleep", "inf"], user=user, group=user, env={"HOME": "/"}) as process:
        wait_until(lambda: os.readlink(f"/proc/{process.pid}/exe").endswith("/sleep"))
        yield process.pid
        process.kill()


@contextmanager
def in_user_namespace(map_of_ids: str, user: int) -> Iterator[int]:
    """A process that USER started in a user namespace of its own, and that became `user` there."""
    program = (
        f"import ctypes, os; assert not ctypes.CDLL(None).unshare({_NEW_USER_NAMESPACE}); print(flush=True); input();"
        f" os.setuid({user}); print(flush=True); input()"
    )
    command, pipe = ["/usr/bin/python3", "-c", program], subprocess.PIPE
    with subprocess.Popen(command, user=USER, group=USER, extra_groups=[], cwd="/", stdin=pipe, stdout=pipe) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        Path(f"/proc/{process.pid}/uid_map").write_text(map_of_ids)
        process.stdin.write(b"\n")
        process.stdin.flush()
        process.stdout.readline()
        yield process.pid
        process.stdin.close()
        process.kill()
