"""What a process says if nobody hears it: in its status at any time, and once in its log if that lost something."""

from pathlib import Path

import pytest

from icestream import tracing
from icestream.tracing import sender
from tests.tracing.traced import TRACE, Listener, burn
from tests.waiting import wait_until


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
