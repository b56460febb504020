"""How the store ends."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from icestream.clickhouse.client import Clients
from standalone import store
from standalone.settings import StoreSettings
from tests.sinks.engine import empty

__all__ = ["empty"]

pytestmark = pytest.mark.store


def test_the_store_ends_after_what_its_api_reads_ahead(
    empty: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def slow(state: Any) -> threading.Thread:
        stop.set()
        threads.append(threading.Thread(target=time.sleep, args=(3,)))
        threads[0].start()
        return threads[0]

    monkeypatch.setattr(store, "start_warming_up", slow)
    monkeypatch.setattr(store, "Clients", lambda _: empty)
    settings = StoreSettings(
        clickhouse=empty.dsn, kafka="127.0.0.1:9", data=tmp_path, listen="127.0.0.1:0"
    ).with_default_folders()
    store.run_store(settings, stop)
    assert not threads[0].is_alive()
