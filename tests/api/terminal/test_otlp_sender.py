"""Sending OTLP profiles to receivers that are busy, or refuse."""

import gzip
import http.server
import threading
import time
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceResponse

from api.terminal.otlp_sender import PATH, OtlpSender, endpoint
from icestream.cli import CommandError
from tests.waiting import PATIENCE_S


class Receiver(http.server.HTTPServer):
    """Gives its answers one after the other, and keeps what came."""

    answers: list[tuple[int, dict[str, str], bytes]]
    bodies: list[bytes]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        status, headers, body = self.server.answers.pop(0)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)  # a client that follows a redirect comes with GET

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver(("127.0.0.1", 0), Handler)
    server.answers, server.bodies = [], []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def sender(receiver: Receiver, give_up_s: float = PATIENCE_S) -> OtlpSender:
    return OtlpSender(f"http://127.0.0.1:{receiver.server_port}{PATH}", {}, threading.Event(), give_up_s)


def test_a_busy_receiver_gets_the_same_bytes_when_it_asked_for_them(receiver: Receiver) -> None:
    receiver.answers += [(503, {"Retry-After": "2"}, b""), (200, {}, b"")]
    started = time.monotonic()
    assert sender(receiver).send(b"profiles")
    assert time.monotonic() - started >= 2
    assert receiver.bodies[0] == receiver.bodies[1]
    assert gzip.decompress(receiver.bodies[0]) == b"profiles"


def test_a_long_retry_after_is_kept_to(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    receiver.answers += [(503, {"Retry-After": "100"}, b"")] * 2
    stopped = sender(receiver, give_up_s=200)
    stopped.stop.set()
    assert not stopped.send(b"profiles")
    assert "sending again in 100.0 s" in caplog.text
    with pytest.raises(CommandError, match="asks to wait 100 s; gave up"):
        sender(receiver, give_up_s=99).send(b"profiles")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_error_that_names_the_address(receiver: Receiver, status: int) -> None:
    elsewhere = f"http://localhost:{receiver.server_port}/elsewhere"
    receiver.answers += [(status, {"Location": elsewhere}, b""), (200, {}, b"")]
    with pytest.raises(CommandError, match=elsewhere):
        sender(receiver).send(b"profiles")
    assert len(receiver.answers) == 1


def test_answers_that_are_cut_off_or_endless_are_none(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    endless = ExportProfilesServiceResponse()
    endless.partial_success.error_message = "a" * 2_000_000
    receiver.answers += [(200, {"Content-Length": "100"}, b""), (200, {}, endless.SerializeToString())]
    stopped = sender(receiver)
    stopped.stop.set()
    assert not stopped.send(b"profiles")
    assert "IncompleteRead" in caplog.text
    with pytest.raises(CommandError, match="like an OTLP receiver"):
        sender(receiver).send(b"profiles")


def test_waits_end_when_told_to_stop_and_when_the_time_is_over(receiver: Receiver) -> None:
    receiver.answers += [(503, {"Retry-After": "30"}, b"")] * 2
    stopped = sender(receiver)
    stopped.stop.set()
    assert not stopped.send(b"profiles")
    with pytest.raises(CommandError, match="gave up"):
        sender(receiver, give_up_s=5).send(b"profiles")


def test_what_is_rejected_is_counted_and_other_answers_end_the_export(receiver: Receiver) -> None:
    partial = ExportProfilesServiceResponse()
    partial.partial_success.rejected_profiles, partial.partial_success.error_message = 3, "too old"
    receiver.answers += [
        (200, {}, partial.SerializeToString()),
        (400, {}, b"\x08\x03\x12\x09no stacks\x1b[31m"),
        (200, {}, b"<html>"),
    ]
    sending = sender(receiver)
    assert sending.send(b"profiles")
    assert (sending.rejected, sending.reasons) == (3, {"too old"})
    with pytest.raises(CommandError, match=r"answers 400 Bad Request: no stacks\[31m"):
        sending.send(b"profiles")
    with pytest.raises(CommandError, match="like an OTLP receiver"):
        sending.send(b"profiles")


def test_an_address_without_a_path_gets_that_of_otlp() -> None:
    assert endpoint("http://collector:4318/") == "http://collector:4318/v1development/profiles"
    assert endpoint("https://a.example/tenant/profiles") == "https://a.example/tenant/profiles"
    for text in ("collector:4318", "grpc://collector:4317", "http://", ""):
        with pytest.raises(CommandError, match="not an HTTP address"):
            endpoint(text)
