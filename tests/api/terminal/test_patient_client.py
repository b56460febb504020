"""Asking an API that restarts."""

import http.server
import threading
from collections.abc import Iterator

import pytest

from api.terminal import patient_client
from api.terminal.client import AnswerError, Client
from api.terminal.patient_client import PatientClient, Stopped
from tests.ports import free_port
from tests.waiting import PATIENCE_S

WHOLE = b'{"profile_types": []}'


class Api(http.server.HTTPServer):
    """Gives its answers one after the other: a status, a Content-Length and what comes of the body."""

    answers: list[tuple[int, int, bytes]]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Api

    def do_GET(self) -> None:
        status, length, body = self.server.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(patient_client, "_AGAIN_S", 0.01)
    monkeypatch.setattr(patient_client, "_FINISH_S", PATIENCE_S)
    server = Api(("127.0.0.1", 0), Handler)
    server.answers = []
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def client(port: int, give_up_s: float = PATIENCE_S, stopped: bool = False) -> PatientClient:
    stop = threading.Event()
    if stopped:
        stop.set()
    return PatientClient(f"http://127.0.0.1:{port}", stop, give_up_s)


def test_every_question_is_asked_again_when_an_api_restarts_in_the_middle_of_an_answer(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    api.answers += [(200, len(WHOLE), WHOLE[:5]), (503, 100, b"{"), (429, 0, b""), (200, len(WHOLE), WHOLE)]
    assert client(api.server_port).json("/api/v1/profile-types", {}) == {"profile_types": []}
    assert caplog.text.count("asking again") == 1


def test_what_is_cut_off_is_no_answer(api: Api) -> None:
    api.answers += [(200, len(WHOLE), WHOLE[:5])]
    with pytest.raises(AnswerError, match="no answer") as raised:
        Client(f"http://127.0.0.1:{api.server_port}").read("/", {})
    assert raised.value.status == 0


def test_what_asking_again_does_not_help_is_raised_at_once(api: Api) -> None:
    api.answers += [(422, 0, b""), (200, len(WHOLE), WHOLE)]
    with pytest.raises(AnswerError):
        client(api.server_port).read("/", {})
    assert api.answers


def test_it_gives_up_and_says_so() -> None:
    with pytest.raises(AnswerError, match=r"no answer from .*; gave up after 0 s"):
        client(free_port(), give_up_s=0.1).read("/", {})


def test_told_to_stop_it_asks_for_what_comes_quickly(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = client(api.server_port, stopped=True)
    api.answers += [(200, len(WHOLE), WHOLE), (503, 0, b""), (200, len(WHOLE), WHOLE)]
    assert asking.read("/", {}) == WHOLE
    with pytest.raises(Stopped):
        asking.read("/", {})
    monkeypatch.setattr(patient_client, "_FINISH_S", -1.0)
    with pytest.raises(Stopped):
        client(api.server_port, stopped=True).read("/", {})
    assert len(api.answers) == 1
