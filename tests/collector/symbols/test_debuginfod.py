"""Debug files from servers: a real debuginfod, and servers that misbehave."""

import http.server
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.elf import identity
from collector.symbols import debuginfod
from collector.symbols.debuginfod import Debuginfod, DebuginfodError, servers
from tests.collector.symbols.http_server import Server, sending
from tests.waiting import PATIENCE_S, wait_until

MB = 1 << 20


@pytest.fixture(scope="module")
def debug_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, debug = tmp_path_factory.mktemp("built") / "program", tmp_path_factory.mktemp("debug") / "program.debug"
    subprocess.run(["gcc", "-g", "-x", "c", "-", "-o", path], input=b"int main(void) { return 0; }", check=True)
    subprocess.run(["objcopy", "--only-keep-debug", path, debug], check=True)
    return debug


@pytest.fixture(scope="module")
def build_id(debug_file: Path) -> str:
    with open(debug_file, "rb") as file:
        return identity.read_file(file.fileno()).build_id


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture
def real_server(debug_file: Path, tmp_path: Path) -> Iterator[str]:
    """A debuginfod that serves the folder of the debug file."""
    if shutil.which("debuginfod") is None:
        if os.environ.get("CI"):
            pytest.fail("debuginfod is not installed: make setup-test installs it")
        pytest.skip("needs debuginfod")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        ["debuginfod", "-d", tmp_path / "index.sqlite", "-p", str(port), "-F", debug_file.parent],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | {"DEBUGINFOD_URLS": ""},
    )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_real_server_gives_the_file_once_it_has_scanned_it(
    real_server: str, debug_file: Path, build_id: str, tmp_path: Path
) -> None:
    address = f"{real_server}/buildid/{build_id.removeprefix('gnu:')}/debuginfo"
    wait_until(lambda: is_there(address))
    client = Debuginfod([real_server], tmp_path / "cache", 100 * MB)
    with pytest.raises(DebuginfodError, match="no server has it"):
        client.fetch("gnu:" + "00" * 20)
    path = client.fetch(build_id)
    assert path.read_bytes() == debug_file.read_bytes()
    assert client.path(build_id) == path


def is_there(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=PATIENCE_S).close()
    except OSError:
        return False
    return True


def test_what_came_is_not_asked_for_again(server: Server, debug_file: Path, build_id: str, tmp_path: Path) -> None:
    server.answer = sending(debug_file.read_bytes())
    client = Debuginfod([server.url], tmp_path / "cache", 100 * MB)
    assert client.path(build_id) is None
    assert client.fetch(build_id) == client.fetch(build_id)
    assert server.asked == [f"/buildid/{build_id.removeprefix('gnu:')}/debuginfo"]


def test_what_is_missing_is_not_asked_for_again_for_a_while(server: Server, build_id: str, tmp_path: Path) -> None:
    for _ in range(3):  # also after a start
        with pytest.raises(DebuginfodError, match="no server has it"):
            Debuginfod([server.url], tmp_path / "cache", MB).fetch(build_id)
    assert len(server.asked) == 1
    old = time.time() - debuginfod.MISSING_S - 1
    for path in (tmp_path / "cache").iterdir():
        os.utime(path, (old, old))
    with pytest.raises(DebuginfodError):
        Debuginfod([server.url], tmp_path / "cache", MB).fetch(build_id)
    assert len(server.asked) == 2


def test_the_next_server_is_asked_where_one_has_nothing_or_fails(
    server: Server, debug_file: Path, build_id: str, tmp_path: Path
) -> None:
    server.answer = sending(debug_file.read_bytes())
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        assert Debuginfod([away, server.url], tmp_path / "cache", 100 * MB).fetch(build_id).exists()


def test_a_server_that_fails_is_left_alone_for_a_while_and_the_answer_is_not_remembered(
    server: Server, build_id: str, tmp_path: Path
) -> None:
    server.answer = lambda request: request.send_error(503)
    client = Debuginfod([server.url], tmp_path / "cache", MB)
    with pytest.raises(DebuginfodError, match="HTTP 503"):
        client.fetch(build_id)
    with pytest.raises(DebuginfodError, match="a moment ago"):
        client.fetch(build_id)
    assert len(server.asked) == 1
    assert not list(tmp_path.glob("cache/*"))


@pytest.mark.parametrize(
    ("data", "length", "reason"),
    [
        (b"x" * 2 * MB, None, "more than"),
        (b"x" * 2 * MB, 0, "more than|build ID|ELF"),
        (b"", 2**62, "more than"),
        (b"x", 10, "1 of 10 bytes|IncompleteRead"),
        (b"no debug file", None, "ELF"),
        (b"", 0, "ELF"),
    ],
)
def test_what_is_no_debug_file_is_not_kept(
    server: Server, build_id: str, tmp_path: Path, data: bytes, length: int | None, reason: str
) -> None:
    server.answer = sending(data, length)
    with pytest.raises(DebuginfodError, match=reason):
        Debuginfod([server.url], tmp_path / "cache", MB).fetch(build_id)
    assert not list(tmp_path.glob("cache/*"))


def test_a_file_with_another_build_id_is_not_taken(server: Server, debug_file: Path, tmp_path: Path) -> None:
    server.answer = sending(debug_file.read_bytes())
    with pytest.raises(DebuginfodError, match="the file that came has the build ID"):
        Debuginfod([server.url], tmp_path / "cache", 100 * MB).fetch("gnu:" + "11" * 20)


def test_a_server_that_says_nothing_is_given_up(
    server: Server, build_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debuginfod, "TIMEOUT_S", 0.2)
    released = threading.Event()
    server.answer = lambda request: void(released.wait(20))
    with pytest.raises(DebuginfodError, match="timed out"):
        Debuginfod([server.url], tmp_path / "cache", MB).fetch(build_id)
    released.set()


def void(_: object) -> None:
    pass


def test_a_redirection_leads_to_no_file_of_this_host(
    server: Server, build_id: str, debug_file: Path, tmp_path: Path
) -> None:
    def redirect(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", f"file://{debug_file}")
        request.end_headers()

    server.answer = redirect
    with pytest.raises(DebuginfodError):
        Debuginfod([server.url], tmp_path / "cache", 100 * MB).fetch(build_id)


@pytest.mark.parametrize("host", ["127.0.0.1", "169.254.169.254", "[::ffff:127.0.0.1]", "[fd00:ec2::254]"])
def test_a_redirection_has_us_ask_nobody_on_our_own_machine_or_link(
    host: str, server: Server, build_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def redirect(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", f"http://{host}/secret")
        request.end_headers()

    server.answer = redirect
    monkeypatch.setenv("http_proxy", server.url)  # through which a server elsewhere is asked
    with pytest.raises(DebuginfodError, match="an address of this machine"):
        Debuginfod(["http://192.0.2.1"], tmp_path / "cache", MB).fetch(build_id)
    assert len(server.asked) == 1


def test_the_folder_keeps_within_its_limit(server: Server, tmp_path: Path) -> None:
    sizes = []
    ids = []
    client = Debuginfod([server.url], tmp_path / "cache", 150_000)
    for i in range(4):
        program = tmp_path / f"p{i}"
        source = b"static char filled[40000] = {1}; int main(void) { return filled[%d]; }" % i
        subprocess.run(["gcc", "-x", "c", "-", "-o", program], input=source, check=True)
        data = program.read_bytes()
        with open(program, "rb") as file:
            ids.append(identity.read_file(file.fileno()).build_id)
        server.answer = sending(data)
        client.fetch(ids[-1])
        sizes.append(sum(path.stat().st_size for path in (tmp_path / "cache").iterdir()))
    assert max(sizes) <= 150_000 < 4 * len(data)
    assert client.path(ids[0]) is None
    assert client.path(ids[-1]) is not None


@pytest.mark.parametrize("build_id", ["sha256:" + "0" * 64, "go:abc/def", "gnu:../../etc/passwd", "gnu:AB", "", "gnu:"])
def test_other_identities_are_not_asked_for(server: Server, tmp_path: Path, build_id: str) -> None:
    client = Debuginfod([server.url], tmp_path / "cache", MB)
    assert client.path(build_id) is None
    with pytest.raises(DebuginfodError):
        client.fetch(build_id)
    assert server.asked == []


def test_no_server_is_asked_unless_one_is_set() -> None:
    environ = {"DEBUGINFOD_URLS": "https://a.example/ http://b.example"}
    assert servers("", environ) == []
    assert servers("env", environ) == ["https://a.example", "http://b.example"]
    assert servers("env", {}) == []
    assert servers(" http://c.example ", environ) == ["http://c.example"]
    with pytest.raises(ValueError, match="debuginfod_urls"):
        servers("file:///etc", environ)
