"""As whom the parts of `icestream up` run when root starts it, and which folders they get."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.terminal.client import Client
from standalone.supervisor import rights
from standalone.supervisor.child_process import Rights
from standalone.supervisor.rights import Folders, RightsError, prepare
from tests.pipeline.running import free_port
from tests.standalone.supervisor.reachable import reachable
from tests.standalone.supervisor.test_up import wait_for
from tests.waiting import PATIENCE_S, wait_until

needs_root = pytest.mark.skipif(os.geteuid() != 0 and not os.environ.get("CI"), reason="needs root")
OTHER = 4321


@pytest.fixture
def data() -> Iterator[Path]:
    """A folder of root that others can enter, unlike pytest's."""
    with tempfile.TemporaryDirectory(prefix="icestream-rights-") as folder:
        os.chmod(folder, 0o755)
        data = Path(folder) / "data"
        data.mkdir()
        yield data


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every user can run the parts, wherever this Python is."""
    monkeypatch.setattr(rights, "_hindrance", lambda rights, folders: "")


def folders(data: Path) -> Folders:
    return Folders(data, [data / "clickhouse", data / "kafka/log"], [data / "spool"])


def owner(path: Path) -> int:
    return path.stat(follow_symlinks=False).st_uid


def test_without_root_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert prepare("", folders(tmp_path)) is None
    assert list(tmp_path.iterdir()) == []


@needs_root
@pytest.mark.usefixtures("able")
def test_in_roots_folder_they_are_a_user_of_their_own_who_gets_what_root_has_left_there(data: Path) -> None:
    (data / "clickhouse/store").mkdir(parents=True)
    (data / "clickhouse/store/part").write_text("old")
    (data / "clickhouse/link").symlink_to("/etc/passwd")
    chosen = prepare("", folders(data))
    assert chosen is not None
    assert 61184 <= chosen.user == chosen.group <= 65519
    own = ["clickhouse", "clickhouse/store", "clickhouse/store/part", "clickhouse/link", "kafka/log"]
    assert {owner(data / name) for name in own} == {chosen.user}
    assert {owner(data / name) for name in ("", "kafka", "spool")} == {owner(Path("/etc/passwd"))} == {0}
    assert prepare("", folders(data)) == chosen


@needs_root
@pytest.mark.usefixtures("able")
def test_what_root_adds_later_becomes_theirs_too_but_no_second_link_to_a_file_of_root(data: Path) -> None:
    chosen = prepare("", folders(data))
    assert chosen is not None
    (data / "clickhouse/added").mkdir()
    (data / "clickhouse/added/part").write_text("by a replay")
    (data.parent / "secret").write_text("of root")
    (data / "clickhouse/trap").hardlink_to(data.parent / "secret")
    prepare("", folders(data))
    assert owner(data / "clickhouse/added") == owner(data / "clickhouse/added/part") == chosen.user
    assert owner(data.parent / "secret") == 0


@needs_root
@pytest.mark.usefixtures("able")
def test_the_owner_of_the_data_folder_runs_them_and_what_others_put_there_stays_theirs(data: Path) -> None:
    (data / "clickhouse").mkdir()
    (data / "clickhouse/trap").write_text("")
    os.chown(data, OTHER, OTHER)
    assert prepare("", folders(data)) == Rights(OTHER, OTHER)
    assert owner(data / "clickhouse/trap") == owner(data / "clickhouse") == 0
    assert owner(data / "kafka/log") == OTHER


@needs_root
@pytest.mark.usefixtures("able")
def test_a_link_in_the_place_of_a_folder_gives_nothing_away(data: Path, tmp_path: Path) -> None:
    (data / "clickhouse").symlink_to(tmp_path)
    prepare("", folders(data))
    assert owner(tmp_path) == owner(data / "clickhouse") == 0


@needs_root
@pytest.mark.usefixtures("able")
def test_files_of_others_in_a_folder_stay_theirs(data: Path) -> None:
    (data / "clickhouse").mkdir()
    (data / "clickhouse/file").write_text("")
    os.chown(data / "clickhouse/file", OTHER, OTHER)
    prepare("", folders(data))
    assert owner(data / "clickhouse/file") == OTHER


@needs_root
@pytest.mark.usefixtures("able")
def test_only_the_user_gets_into_a_closed_folder(data: Path) -> None:
    data.chmod(0o700)
    chosen = prepare("", folders(data))
    assert chosen is not None
    assert (data.stat().st_gid, data.stat().st_mode & 0o777) == (chosen.group, 0o710)


@needs_root
@pytest.mark.usefixtures("able")
@pytest.mark.parametrize(("user", "expected"), [("root", Rights(0, 0)), ("4321", Rights(4321, 4321))])
def test_the_user_can_be_chosen(data: Path, user: str, expected: Rights) -> None:
    assert prepare(user, folders(data)) == expected
    assert owner(data / "clickhouse") == expected.user


@needs_root
def test_a_user_who_cannot_run_them_is_refused_and_by_default_they_run_without_capabilities(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rights, "_hindrance", lambda rights, folders: "it cannot read the code")
    with pytest.raises(RightsError, match="user 4321 cannot run icestream: it cannot read the code"):
        prepare("4321", folders(data))
    with pytest.raises(RightsError, match="there is no user nobody-has-this-name"):
        prepare("nobody-has-this-name", folders(data))
    assert prepare("", folders(data)) == Rights(0, 0)
    assert owner(data / "clickhouse") == owner(data / "kafka/log") == 0


@needs_root
def test_a_folder_elsewhere_that_the_user_cannot_write_to_keeps_them_root(data: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from standalone.supervisor.rights import Folders, _hindrance;"
        "from standalone.supervisor.child_process import Rights;"
        "print(*[_hindrance(Rights(4321, 4321), [Path(path)]) or 'able' for path in sys.argv[1:]], sep='|')"
    )
    mine = data / "mine"
    mine.mkdir()
    os.chown(mine, OTHER, OTHER)
    paths = [str(mine), str(mine / "new/below"), str(data), "/proc/1"]
    done = subprocess.run(reachable([sys.executable, "-c", code, *paths]), capture_output=True, text=True, check=True)
    cannot = "it cannot write to"
    assert done.stdout.strip().split("|") == ["able", "able", f"{cannot} {data}", f"{cannot} /proc/1"]


@needs_root
@pytest.mark.parametrize("user", [0, OTHER])
def test_a_part_has_no_capability_gains_none_and_ends_with_its_parent(user: int) -> None:
    code = (
        "import time; from standalone.supervisor.child_process import Rights, spawn;"
        f"print(spawn(['/bin/sleep', '1000'], rights=Rights({user}, {user})).pid, flush=True); time.sleep(1000)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        status = read_status(child)
        assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0000000000000000"}
        assert (status["NoNewPrivs"], status["Uid"].split()) == ("1", [str(user)] * 4)
        assert status["Groups"].split() == []
    finally:
        parent.kill()
        parent.communicate()
    wait_until(lambda: not Path(f"/proc/{child}").exists())


@needs_root
@pytest.mark.ebpf
def test_only_the_supervisor_and_the_collector_are_root_and_everything_is_stored_and_named(data: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    arguments = ["--listen", listen, "--data", str(data), "--metrics-listen", "127.0.0.1:0", "--no-local-kafka",
                 "--gateway-listen", "127.0.0.1:0", "--gateway-grpc-listen", "127.0.0.1:0"]  # fmt: skip
    environ = os.environ | {"ICESTREAM_INTERVAL": "1", "ICESTREAM_ACTIVITY_SOCKET": str(data.parent / "socket")}
    client = Client(f"http://{listen}")
    with (data.parent / "log").open("wb") as output:
        command = reachable([sys.executable, "-m", "icestream.cli", "up", *arguments])
        up = subprocess.Popen(command, env=environ, stdout=output, stderr=output, process_group=0)

    def log() -> str:
        return (data.parent / "log").read_text(errors="replace")[-4000:]

    try:
        wait_for(lambda: "ready: http" in log(), log)
        children = Path(f"/proc/{up.pid}/task/{up.pid}/children").read_text().split()
        users = {read_command(pid): int(read_status(int(pid))["Uid"].split()[0]) for pid in children}
        assert users.pop("collect") == 0
        assert set(users) == {"store", "streams", "gateway"}
        assert len(set(users.values())) == 1
        assert set(users.values()) <= set(range(61184, 65520))
        wait_for(lambda: count(client) > 0, log)
        wait_for(lambda: any((data / "symbols").glob("*/*.symcache")), log)
        wait_for(lambda: any((data / "symbol-cache").iterdir()), log)
    finally:
        up.terminate()
        assert up.wait(PATIENCE_S) == 0


def count(client: Client) -> int:
    return int(client.json("/api/v1/merge", {"start": "now-1h", "end": "now"})["total"])


def read_command(pid: str) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[3]


def read_status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
