"""Which user runs the parts of `icestream up`, and what that user gets."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from icestream import cli
from jobs.job import Job, JobError
from jobs.submit import submit
from sinks.settings import StorageSettings
from standalone.settings import UpSettings
from standalone.supervisor import parts_user
from standalone.supervisor.account import Account, find_account
from standalone.supervisor.give_folder import give, let_read
from standalone.supervisor.local_kafka import why_unavailable
from standalone.supervisor.parts_user import UserError, choose_user
from standalone.supervisor.reach import Needs, own_code, why_not
from tests.standalone.supervisor.up import Up, alive, publish, wait_for
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def nobody() -> Account:
    account = find_account("nobody")
    assert account is not None
    return account


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder that every user can enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="icestream-test-") as path:
        os.chmod(path, 0o755)
        yield Path(path)


@pytest.fixture
def opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def test_what_root_wrote_is_given_but_what_links_lead_to_is_not(folder: Path, opened: int, nobody: Account) -> None:
    secret, secrets = folder / "secret", folder / "secrets"
    secret.touch()
    (secrets / "inner").mkdir(parents=True)
    deep = folder / "kafka/log/a/b"
    deep.mkdir(parents=True)
    (deep / "file").write_text("rows")
    (deep / "hard").hardlink_to(deep / "file")  # as ClickHouse makes them
    (deep / "to_file").symlink_to(secret)
    (deep / "to_folder").symlink_to(secrets)
    (folder / "kafka").chmod(0o700)
    give(opened, "kafka/log", nobody)
    given = [folder / "kafka/log", folder / "kafka/log/a", deep, deep / "file", deep / "hard"]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in given} == {(nobody.uid, nobody.gid)}
    kept = [folder / "kafka", secret, secrets, secrets / "inner"]
    assert {path.stat().st_uid for path in kept} == {0}
    assert (folder / "kafka").stat().st_mode & 0o777 == 0o755


def test_a_missing_folder_is_made_and_a_link_in_its_place_is_refused(
    folder: Path, opened: int, nobody: Account
) -> None:
    give(opened, "archive", nobody)
    assert (folder / "archive").stat().st_uid == nobody.uid
    (folder / "real").mkdir()
    (folder / "clickhouse").symlink_to("real")
    (folder / "kafka").symlink_to("real")
    for path in ("clickhouse", "kafka/log"):
        with pytest.raises(OSError, match=r"clickhouse|kafka"):
            give(opened, path, nobody)
    assert (folder / "real").stat().st_uid == 0
    assert not list((folder / "real").iterdir())


def test_what_the_user_put_into_its_own_folders_is_left_alone(folder: Path, opened: int, nobody: Account) -> None:
    """Also when an earlier start was killed while it gave a folder, and when another user gets it."""
    other = Account("other", 12345, 12345, "/")
    shadow = folder / "shadow"
    shadow.touch()
    inner = folder / "clickhouse/inner"
    inner.mkdir(parents=True)
    (inner / "link").hardlink_to(shadow)
    (inner / "own").touch()
    for path in (inner, inner / "own"):
        os.chown(path, nobody.uid, nobody.gid)
    give(opened, "clickhouse", nobody)
    assert (folder / "clickhouse").stat().st_uid == nobody.uid
    assert shadow.stat().st_uid == 0
    give(opened, "clickhouse", other)
    assert (inner / "own").stat().st_uid == other.uid
    assert shadow.stat().st_uid == 0


def test_the_symbols_stay_roots_and_the_user_may_read_them(folder: Path, opened: int, nobody: Account) -> None:
    (folder / "symbols").mkdir(mode=0o700)
    let_read(opened, "symbols", nobody)
    status = (folder / "symbols").stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (0, nobody.gid, 0o750)


def test_what_the_user_cannot_reach_is_named(folder: Path, nobody: Account) -> None:
    assert why_not(nobody, Needs(folder, listen=["127.0.0.1:0"])) is None
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    (folder / "file").touch(mode=0o600)
    (folder / "kept").mkdir()
    for needs, told in (
        (Needs(closed / "data"), f"cannot enter {closed},"),
        (Needs(closed), f"cannot enter {closed},"),
        (Needs(folder, read=[closed / "code.py"]), f"cannot enter {closed}, on the way to {closed}"),
        (Needs(folder, read=[folder / "file"]), f"cannot read {folder / 'file'}"),
        (Needs(folder, write=[folder / "kept"]), f"cannot write to {folder / 'kept'}"),
        (Needs(folder, listen=["127.0.0.1:1"]), "cannot listen on 127.0.0.1:1 "),
    ):
        assert told in (why_not(nobody, needs) or ""), told
    assert why_not(nobody, Needs(folder, write=[folder / "new/lake"])) is None
    folder.chmod(0o777)
    for data in (folder, folder / "kept"):
        assert f"can change {folder}, and root writes in {data}" in (why_not(nobody, Needs(data)) or "")
    folder.chmod(0o1777)
    assert why_not(nobody, Needs(folder / "kept")) is None
    assert f"can change {folder}, and" in (why_not(nobody, Needs(folder)) or "")
    os.chown(folder, nobody.uid, 0)
    assert f"can change {folder}, and" in (why_not(nobody, Needs(folder / "kept")) or "")


def test_by_default_root_runs_what_the_user_cannot_reach_but_not_in_folders_of_that_user(
    folder: Path, opened: int, nobody: Account, caplog: pytest.LogCaptureFixture
) -> None:
    folder.chmod(0o700)
    data = folder / "data"
    data.mkdir()
    settings = UpSettings(data=data, local_kafka=False)
    assert choose_user(settings, []) is None
    assert "all parts run as root" in caplog.text
    assert not list(data.iterdir())
    with pytest.raises(UserError, match=r"--user nobody: .* cannot enter "):
        choose_user(UpSettings(data=data, local_kafka=False, user="nobody"), [])
    give(opened, "data/clickhouse", nobody)
    with pytest.raises(UserError, match=f"would work in {data}/clickhouse, which is not root's"):
        choose_user(settings, [])
    assert choose_user(UpSettings(data=data, user="root"), []) is None
    assert (data / "clickhouse").stat().st_uid == 0


def test_a_folder_named_in_settings_is_made_for_the_user_and_an_existing_one_is_not_given(
    folder: Path, nobody: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts_user, "own_code", set)  # the code may lie where only root can go
    data = folder / "data"
    data.mkdir()
    lake = folder / "lake"
    settings = UpSettings(data=data, lake=str(lake), local_kafka=False, user="nobody")
    assert choose_user(settings, []) == nobody
    assert {path.name: path.stat().st_uid for path in data.iterdir()} == {
        "clickhouse": nobody.uid, "archive": nobody.uid, "symbol-cache": nobody.uid, "symbols": 0,
    }  # fmt: skip
    assert lake.stat().st_uid == nobody.uid
    os.chown(lake, 0, 0)
    with pytest.raises(UserError, match=f"cannot write to {lake}"):
        choose_user(settings, [])
    assert lake.stat().st_uid == 0


def test_a_user_that_cannot_be_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    up = ["up", "--data", str(folder), "--listen", "127.0.0.1:0", "--no-gateway", "--metrics-listen", "127.0.0.1:0"]
    assert cli.main([*up, "--user", "no-such-user"]) == 1
    assert "--user no-such-user: there is no user no-such-user" in capsys.readouterr().err
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cli.main([*up, "--user", "nobody"]) == 1
    assert "--user nobody needs root" in capsys.readouterr().err


def test_a_child_of_a_user_has_no_right_and_dies_with_its_parent(nobody: Account) -> None:
    code = (
        "import time; from standalone.supervisor.child_process import spawn\n"
        "from standalone.supervisor.account import find_account\n"
        "print(spawn(['/bin/sleep', '3600'], user=find_account('nobody')).pid, flush=True); time.sleep(3600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        check_unprivileged(child, nobody)
        parent.kill()
    wait_until(lambda: not alive(child))


def test_its_environment_leads_to_no_folder_of_another_user(nobody: Account) -> None:
    of_root = {"HOME": "/root", "XDG_CACHE_HOME": "/root/.cache", "TMPDIR": "/root/tmp", "USER": "root", "PATH": "/bin"}
    environ = nobody.environ(of_root)
    assert environ == {"HOME": nobody.home, "USER": "nobody", "LOGNAME": "nobody", "PATH": "/bin"}


def test_a_job_of_root_does_not_open_the_tables_of_another_user(folder: Path, nobody: Account) -> None:
    tables = folder / "clickhouse"
    tables.mkdir()
    os.chown(tables, nobody.uid, nobody.gid)
    job = Job(kind="replay", start_unix_nano=0, end_unix_nano=10**9)
    with pytest.raises(JobError, match=f"{tables} belongs to another user than root"):
        submit(job, StorageSettings(clickhouse=f"chdb://{tables}"), lambda part, text: None)
    assert not list(tables.iterdir())


@pytest.mark.ebpf
def test_only_the_collector_and_the_supervisor_run_as_root(folder: Path, nobody: Account) -> None:
    data = folder / "data"
    data.mkdir()
    before = reachable_code(nobody, folder)
    memory = ("--no-local-kafka", "--no-gateway", "--activity-socket", str(folder / "activity.sock"))
    as_root = Up(data, "--user", "root", *memory)
    try:
        as_root.wait_ready()
        value = publish(as_root, 1)
        wait_for(lambda: as_root.total() == value, as_root.log)
        as_root.end(signal.SIGTERM)
    finally:
        as_root.process.kill()
        as_root.process.wait()
    assert (data / "clickhouse").stat().st_uid == 0

    victim = folder / "victim"
    victim.write_text("of root")
    (data / "clickhouse/link").symlink_to(victim)
    (data / "archive/link").symlink_to(folder)
    kafka = why_unavailable() is None
    up = Up(
        data, "--user", "nobody", "--collector", "--gateway", "--activity-socket", str(folder / "activity.sock"),
        before=before,
    )  # fmt: skip
    try:
        up.wait_ready()
        parts = {part_name(child): child for child in up.children()}
        broker = "kafka.Kafka" if kafka else "standalone.supervisor.in_process_broker"
        assert set(parts) == {"store", "streams", "gateway", "collect", broker}
        assert status(parts.pop("collect"))["Uid"].split() == ["0"] * 4
        for child in parts.values():
            check_unprivileged(child, nobody)
        assert up.total() >= value  # what root had stored
        wait_for(lambda: up.total("now-2m") > 0, up.log)  # what the collector sampled
        up.end(signal.SIGTERM)
        assert up.process.returncode == 0, up.log()
    finally:
        up.process.kill()
        up.process.wait()
    owners = {path.name: path.stat().st_uid for path in data.iterdir()}
    assert {name for name, uid in owners.items() if uid == nobody.uid} == {"clickhouse", "archive", "symbol-cache"}
    assert set(owners.values()) == {0, nobody.uid}
    assert victim.stat().st_uid == folder.stat().st_uid == 0


def check_unprivileged(child: int, user: Account) -> None:
    found = status(child)
    assert found["Uid"].split() == [str(user.uid)] * 4
    assert found["Gid"].split() == [str(user.gid)] * 4
    assert found["Groups"].split() == []
    assert {int(found[f"Cap{name}"], 16) for name in ("Inh", "Prm", "Eff", "Amb")} == {0}
    assert found["NoNewPrivs"] == "1"


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def part_name(pid: int) -> str:
    """`store` of `python -m icestream.cli store`, the module that else runs, and the class that Java runs."""
    words = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
    return words[-2] if "java" in words[0] else words[3] if words[2] == "icestream.cli" else words[2]


def reachable_code(user: Account, folder: Path) -> list[str]:
    """Returns the command before one in which the user can reach the code. Where a folder above it is closed, such as
    /root, that is a mount namespace with another folder in its place, which has of it what the code needs."""
    code = own_code()
    closed = next((p for file in sorted(code) for p in reversed(file.parents) if not p.stat().st_mode & 0o001), None)
    if closed is None:
        return []
    needed = {file.relative_to(closed).parts[0] for file in code if file.is_relative_to(closed)}
    aside, entries = folder / "aside", [f"{closed}/{name}" for name in needed]
    aside.mkdir()
    script = [f"mount --bind {closed} {aside}", f"mount -t tmpfs -o mode=755 tmpfs {closed}"]
    for name, entry in zip(needed, entries, strict=True):
        script += [f"mkdir {entry}", f"mount --bind {aside}/{name} {entry}"]
    command = ["unshare", "--mount", "sh", "-ec", "\n".join([*script, 'exec "$@"']), "sh"]
    if shutil.which("unshare") is None or subprocess.run([*command, "true"], check=False).returncode:
        pytest.skip(f"the user {user.name} cannot enter {closed}, and mount namespaces cannot be made here")
    return command
