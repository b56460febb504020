"""What a process says if nobody hears it: in its status at any time, and once in its log if that lost something."""

from pathlib import Path

import pytest
from opentelemetry import trace

from icestream import tracing
from icestream.tracing import sender, threads
from tests.tracing.test_opentelemetry import tracer
from tests.tracing.traced import TRACE, Listener, burn
from tests.waiting import PATIENCE_S, wait_until

__all__ = ["tracer"]


def test_the_status_says_whether_a_collector_listens_now(tmp_path: Path) -> None:
    assert tracing.status().collector == "not started"
    path = tmp_path / "activity.sock"
    tracing.start(service="tested", socket=str(path))
    try:
        assert f"no collector listens on {path}" in tracing.status().collector
        assert "ICESTREAM_ACTIVITY_SOCKET" in tracing.status().collector
        listener = Listener(path)
        assert tracing.status().collector == "listens"
        listener.close()
        assert f"no collector listens on {path}" in tracing.status().collector
    finally:
        tracing.stop()


@pytest.mark.parametrize("path", ["{tmp}/file/activity.sock", "{tmp}/" + "long" * 40])
def test_the_status_says_why_a_socket_cannot_be_used(path: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = path.format(tmp=tmp_path)
    tracing.start(service="tested", socket=path)
    try:
        assert tracing.status().collector.startswith(f"this process cannot send to {path}: ")
    finally:
        tracing.stop()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """By tracing: other threads of this process may log, too."""
    return [record.getMessage() for record in caplog.records if record.name == "icestream.tracing"]


@pytest.mark.parametrize("seconds", [0.01, 10])
def test_lost_activity_is_logged_once(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sender, "MOST_WAITING_SECONDS", seconds)
    tracing.start(service="tested", socket=str(tmp_path / "nobody.sock"))
    try:
        for _ in range(3):
            dropped = tracing.status().dropped_intervals
            with tracing.span(TRACE):
                burn(1)
            if seconds < 1:
                wait_until(lambda dropped=dropped: tracing.status().dropped_intervals > dropped)  # type: ignore[misc]
                assert len(said(caplog)) == 1
    finally:
        tracing.stop()
    (message,) = said(caplog)
    assert message.startswith(f"activity is lost: no collector listens on {tmp_path}/nobody.sock")


def test_spans_that_nobody_heard_of_are_counted_and_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tracer: trace.Tracer
) -> None:
    monkeypatch.setattr(sender, "MOST_WAITING_SECONDS", 0.01)
    tracing.start(service="tested", socket=str(tmp_path / "nobody.sock"))
    try:
        for _ in range(2):
            dropped = tracing.status().dropped_spans
            for _ in range(3):
                tracer.start_span("no thread works for it").end()
            wait_until(lambda dropped=dropped: tracing.status().dropped_spans == dropped + 3)  # type: ignore[misc]
            assert tracing.status().dropped_intervals == 0
            assert len(said(caplog)) == 1
    finally:
        tracing.stop()


def test_spans_beyond_the_limit_of_a_thread_are_counted(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, tracer: trace.Tracer
) -> None:
    monkeypatch.setattr(sender, "PERIOD_SECONDS", PATIENCE_S)
    tracing.start(service="tested", socket=listener.path)
    try:
        monkeypatch.setattr(threads.limits, "spans", 10)
        for _ in range(20):
            with tracing.span(TRACE), tracer.start_as_current_span("inner"):
                pass
        threads.registry.wake()
        wait_until(lambda: tracing.status().dropped_spans == 30)
    finally:
        tracing.stop()
    assert len(listener.take().spans) == 10


def test_nothing_is_logged_if_nothing_was_lost(
    tmp_path: Path, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    tracing.start(service="idle", socket=str(tmp_path / "nobody.sock"))
    tracing.stop()
    tracing.start(service="heard", socket=listener.path)
    with tracing.span(TRACE):
        burn(1)
    tracing.stop()
    assert said(caplog) == []
