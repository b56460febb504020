"""After a start, the stacks of the last hour are in memory before somebody asks."""

import time
from typing import cast

import pytest
from clickhouse_connect.driver.client import Client
from fastapi import FastAPI

from api import warm_up as module
from api.http.app import create_app
from api.http.app_state import ApiState
from api.settings import ApiSettings
from api.warm_up import start_warming_up, warm_up
from icestream.clickhouse.client import Clients
from tests.api.conftest import Api
from tests.api.fill import Sample, fill, frame

pytestmark = pytest.mark.store

MAIN, WORK = frame("main"), frame("work")


def shared(api: Api) -> ApiState:
    state: ApiState = cast(FastAPI, api.http.app).state.shared
    return state


def merged(api: Api, now: float) -> str:
    return api.get("/api/v1/merge", start=str(int(now) - 600), end=str(int(now) + 1), format="collapsed").text


def test_stacks_of_the_last_hour_are_read_once(api: Api, client: Client) -> None:
    now = time.time()
    fill(client, [Sample((MAIN, WORK), time_s=now - 60)])
    start_warming_up(shared(api)).join()
    for table in ("nodes", "locations"):
        client.command(f"TRUNCATE TABLE {table}")
    assert merged(api, now) == "main;work 10000000\n"


def test_of_too_many_stacks_none_is_read(api: Api, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_STACKS", 1)
    now = time.time()
    fill(client, [Sample(stack, time_s=now - 60) for stack in ((MAIN,), (MAIN, WORK))])
    start_warming_up(shared(api)).join()
    client.command("TRUNCATE TABLE nodes")
    assert "work" not in merged(api, now)


def test_without_tables_nothing_is_read(engine: str) -> None:
    app = create_app(ApiSettings(), Clients(engine, database="default"))
    start_warming_up(app.state.shared).join()


def test_without_an_address_nothing_is_read() -> None:
    warm_up(create_app(ApiSettings(), Clients("foo")).state.shared)
