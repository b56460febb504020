"""The supervisor, with real processes."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from icestream.settings import SettingError
from standalone.supervisor import supervisor
from standalone.supervisor.child_process import spawn
from standalone.supervisor.supervisor import PartFailed, SupervisedProcess, Supervisor
from tests.waiting import PATIENCE_S, wait_until

FOREVER = "import time; time.sleep(3600)"


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    """It asks parts that are ready as often as others."""
    monkeypatch.setattr(supervisor, "_ASK_READY_S", 0.0)
    running = Supervisor()
    yield running
    running.close()


def python(
    name: str, code: str, ready: str | None = None, optional: bool = False, stop_s: float = 2.5
) -> SupervisedProcess:
    argv = [sys.executable, "-u", "-c", code]
    return SupervisedProcess(name, argv, dict(os.environ), ask=lambda: ready, optional=optional, stop_s=stop_s)


def dies_when_ready(name: str, code: str, asked: Path) -> SupervisedProcess:
    """A part that ends with this exit code once the supervisor knows that it is ready. `asked` has a byte for each
    question: the last one before the start may be about the process before, and the next one is known when another
    comes."""
    asked.touch()

    def ask() -> None:
        with asked.open("ab") as file:
            file.write(b"?")

    ends = (
        f"import os, time; asked = lambda: os.path.getsize({str(asked)!r}); begin = asked()\n"
        f"while asked() < begin + 3: time.sleep(0.01)\nraise SystemExit({code})"
    )
    return replace(python(name, ends), ask=ask)


def test_a_part_that_dies_is_started_again(running: Supervisor, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    running.start(python("part", f"open({str(starts)!r}, 'a').write('x'); {FOREVER}"))
    stop = threading.Event()

    def kill() -> None:
        wait_until(lambda: starts.exists() and len(starts.read_text()) == 1)
        wait_until(lambda: running.not_ready() is None)
        os.kill(pids(running)[0], signal.SIGKILL)
        wait_until(lambda: len(starts.read_text()) == 2)
        stop.set()

    killer = threading.Thread(target=kill)
    killer.start()
    running.run(stop)
    killer.join()
    assert len(starts.read_text()) == 2


def test_a_part_that_is_ready_is_asked_less_often(running: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_ASK_INTERVAL_S", 0.01)
    monkeypatch.setattr(supervisor, "_ASK_READY_S", PATIENCE_S)
    asked, answers = Counter[str](), {"ready": None, "not ready": "waits"}
    for name in answers:

        def ask(name: str = name) -> str | None:
            asked[name] += 1
            return answers[name]

        running.start(replace(python(name, FOREVER), ask=ask))
    wait_until(lambda: asked["not ready"] > 20)
    assert asked["ready"] == 1


def test_a_part_that_never_comes_up_ends_everything_with_its_last_lines(
    running: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_BACKOFF_S", (0.01,))
    running.start(python("broken", "raise SystemExit('no such database')", ready="does not answer yet"))
    with pytest.raises(PartFailed, match=r"broken does not stay up \(ended with exit code 1.*(?s:.)*no such database"):
        running.run(threading.Event())


def test_a_part_is_given_up_with_its_last_lines_while_a_process_that_it_started_goes_on_writing(
    running: Supervisor,
) -> None:
    writes = replace(python("part", ""), argv=["sh", "-c", "while :; do echo line; done"])
    running.start(writes)
    child = running._children[0]
    wait_until(lambda: len(child.last_lines) == 12)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(2000):
            with pytest.raises(PartFailed, match=r"(?s)Its last lines:(\n  line){12}$"):
                running._give_up(child)
    finally:
        sys.setswitchinterval(interval_s)


@pytest.mark.parametrize("optional", [False, True])
def test_a_part_that_cannot_start_with_its_settings_ends_everything_at_once(
    running: Supervisor, caplog: pytest.LogCaptureFixture, optional: bool
) -> None:
    told = "frequency: expected 1 to 10000, got 0"
    code = f"import sys; print('icestream collect: {told}', file=sys.stderr); raise SystemExit(2)"
    running.start(python("collect", code, ready="does not answer yet", optional=optional))
    with pytest.raises(SettingError, match=f"^collect: {told}$"):
        running.run(threading.Event())
    assert caplog.text == ""


def test_nobody_waits_for_an_optional_part_that_does_not_come_up(
    running: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "_BACKOFF_S", (0.01, 10.0))
    running.start(python("collector", "raise SystemExit('no BPF here')", ready="does not answer yet", optional=True))
    running.start(python("store", FOREVER))
    stop = threading.Event()
    assert running.wait_ready(stop, PATIENCE_S)
    assert "no BPF here" in caplog.text
    assert "icestream runs without it, and starts it again in 20 s" in caplog.text


def test_an_optional_part_starts_when_the_file_comes_that_it_lacks(
    running: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """What is in the file is wrong at first, as if somebody were writing it: that ends nothing either."""
    for name, value in (("_BACKOFF_S", (0.01,)), ("_ASK_INTERVAL_S", 0.01)):
        monkeypatch.setattr(supervisor, name, value)
    file = tmp_path / "later.key"
    code = (
        f"import pathlib, time; file = pathlib.Path({str(file)!r})\n"
        "if not file.exists(): raise SystemExit('no key')\n"
        "if file.read_text() != 'key': raise SystemExit(2)\n"
        "time.sleep(3600)"
    )
    part = python("gateway", code, optional=True)
    running.start(replace(part, ask=lambda: None if file.exists() and file.read_text() == "key" else "no answer"))
    running.start(python("store", FOREVER))
    stop = threading.Event()

    def write() -> None:
        try:
            wait_until(lambda: "no key\nicestream runs without it" in caplog.text)
            file.write_text("half")
            wait_until(lambda: "gateway ended with exit code 2; starting it again" in caplog.text)
            file.write_text("key")
            wait_until(lambda: running._children[0].ready)
        finally:
            stop.set()

    writing = threading.Thread(target=write)
    writing.start()
    running.run(stop)
    writing.join()
    assert running._children[0].ready
    assert caplog.text.count("icestream runs without it") == 1


def test_a_part_that_dies_soon_after_it_was_ready_does_so_20_times_at_most(
    running: Supervisor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in (("_BACKOFF_S", (0.01,)), ("_ASK_INTERVAL_S", 0.01), ("_RUNNING_TICK_S", 0.01)):
        monkeypatch.setattr(supervisor, name, value)
    running.start(dies_when_ready("crashing", "3", tmp_path / "asked"))
    with pytest.raises(PartFailed, match="exit code 3, 20 times"):
        running.run(threading.Event())


def test_an_optional_part_that_dies_again_and_again_is_started_again_later_and_the_others_go_on(
    running: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    for name, value in (("_BACKOFF_S", (0.01,)), ("_ASK_INTERVAL_S", 0.01), ("QUICK_DEATHS", 3), ("_LONG_WAIT_S", 0.2)):
        monkeypatch.setattr(supervisor, name, value)
    running.start(replace(dies_when_ready("gateway", "'no port'", tmp_path / "asked"), optional=True))
    running.start(python("store", FOREVER))
    stop = threading.Event()

    def wait_until_told_twice() -> None:
        wait_until(lambda: caplog.text.count("no port\nicestream runs without it, and") >= 2)
        stop.set()

    waiting = threading.Thread(target=wait_until_told_twice)
    waiting.start()
    running.run(stop)
    waiting.join()
    store = running._children[1].process
    assert store is not None
    assert store.poll() is None


def test_an_optional_part_that_was_ready_has_as_many_starts_as_others_and_then_nobody_waits_for_it(
    running: Supervisor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in (("_BACKOFF_S", (0.01,)), ("_ASK_INTERVAL_S", 0.01), ("FAILED_STARTS", 3)):
        monkeypatch.setattr(supervisor, name, value)
    killed = tmp_path / "killed"
    code = f"import os, time; time.sleep(0 if os.path.exists({str(killed)!r}) else 3600); raise SystemExit(3)"
    part = python("gateway", code, optional=True)
    running.start(replace(part, ask=lambda: "waits for Kafka" if killed.exists() else None))
    running.start(python("store", FOREVER))
    stop = threading.Event()
    answers: list[str | None] = []

    def kill() -> None:
        wait_until(lambda: running.not_ready() is None)
        killed.touch()
        os.kill(pids(running)[0], signal.SIGKILL)
        wait_until(lambda: "and starts it again in 300 s" in caplog.text)
        answers.append(running.not_ready())
        stop.set()

    killer = threading.Thread(target=kill)
    killer.start()
    running.run(stop)
    killer.join()
    assert running._children[0].failed_starts == 3
    assert answers == [None]


def test_parts_end_in_the_reverse_order_and_a_stubborn_one_is_killed(running: Supervisor, tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    polite = (
        "import signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (open({str(ended)!r}, 'a').write(sys.argv[1]), sys.exit(0)))\n"
        "print('up')\ntime.sleep(3600)"
    )
    for name in "abc":
        part = python(name, polite)
        running.start(SupervisedProcess(name, [*part.argv, name], part.env, part.ask, stop_s=PATIENCE_S))
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(3600)"
    running.start(python("deaf", deaf, stop_s=0.5))
    wait_until(lambda: all(child.last_lines for child in running._children))
    processes = [child.process for child in running._children]
    running.close()
    assert ended.read_text() == "cba"
    assert [process and process.returncode for process in processes] == [0, 0, 0, -signal.SIGKILL]


def test_children_die_with_a_parent_that_is_killed() -> None:
    code = (
        "import sys, time; from standalone.supervisor.child_process import spawn\n"
        f"print(spawn([sys.executable, '-c', {FOREVER!r}]).pid, flush=True); time.sleep(3600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert Path(f"/proc/{child}").exists()
        parent.kill()
    wait_until(lambda: state(child) in ("", "Z"))


def test_a_child_is_not_reached_by_ctrl_c() -> None:
    child = spawn([sys.executable, "-c", FOREVER])
    assert os.getpgid(child.pid) != os.getpgid(0)
    child.kill()
    child.wait()


def test_not_ready_names_the_part_and_the_reason(running: Supervisor) -> None:
    running.start(python("store", FOREVER, ready="waits for Kafka"))
    wait_until(lambda: running.not_ready() == "store: waits for Kafka")
    assert not running.wait_ready(threading.Event(), 0.1)


def pids(running: Supervisor) -> list[int]:
    return [child.process.pid for child in running._children if child.process is not None]


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
