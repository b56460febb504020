"""What all routes share: the application's `app.state.shared`."""

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request

from api.queries.database import Database
from api.queries.labels.known_series import KnownSeries
from api.queries.read_only_sql import ReadOnlySql
from api.settings import ApiSettings
from api.tree.stack_cache import StackCache


@dataclass(frozen=True)
class ApiState:
    settings: ApiSettings
    database: Database
    stacks: StackCache
    series: KnownSeries
    sql: ReadOnlySql
    also_ready: Callable[[], str | None]
    """Returns why something else that this process does is not ready, or None if it is."""
    parts: tuple[str, ...]
    """The parts that this process runs (icestream.http.metrics.PARTS)."""


async def app_state(request: Request) -> ApiState:
    """For routes, as a dependency."""
    state: ApiState = request.app.state.shared
    return state
