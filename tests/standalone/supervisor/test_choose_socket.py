"""Where `icestream up` puts the socket that applications report to."""

import os
import socket
from pathlib import Path

import pytest

from icestream.files.data_folder import SYSTEM_SOCKET
from icestream.tracing import lifecycle
from standalone.settings import UpSettings
from standalone.supervisor import local_pipeline
from standalone.supervisor.local_pipeline import choose_socket


@pytest.fixture
def settings(tmp_path: Path) -> UpSettings:
    return UpSettings(data=tmp_path / "data")


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a path that stands for the one where applications look."""
    path = tmp_path / "run/icestream/activity.sock"
    monkeypatch.setattr(local_pipeline, "SYSTEM_SOCKET", path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return path


def test_whatever_the_data_folder_is_applications_find_it(settings: UpSettings, system: Path) -> None:
    assert str(SYSTEM_SOCKET) == lifecycle.DEFAULT_SOCKET
    assert choose_socket(settings) == system
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
        killed.bind(str(system))
    assert system.exists()
    assert choose_socket(settings) == system


def test_another_collector_keeps_its_socket(settings: UpSettings, system: Path, tmp_path: Path) -> None:
    system.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(system))
        assert choose_socket(settings) == tmp_path / "data/activity.sock"


def test_what_cannot_be_made_is_not_chosen(
    settings: UpSettings, system: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").touch()
    assert choose_socket(settings) == tmp_path / "data/activity.sock"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert choose_socket(settings) == tmp_path / "data/activity.sock"


def test_a_socket_that_was_asked_for_is_used(system: Path, tmp_path: Path) -> None:
    assert choose_socket(UpSettings(activity_socket=str(tmp_path / "asked.sock"))) == tmp_path / "asked.sock"
