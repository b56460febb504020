"""What all routes share: the application's `app.state.shared`."""

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request

from api.errors import ApiError
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

    def require(self, when: str, flag: str, refusal: str) -> None:
        """Raises ApiError with `refusal` unless `when`, the value of the setting with this flag, permits it."""
        if not self.settings.permits(when):
            hint = f"it does if it listens on the loopback only, or with {flag} always (docs/security.md)"
            raise ApiError(404, "not_found", refusal, hint)


async def app_state(request: Request) -> ApiState:
    """For routes, as a dependency."""
    state: ApiState = request.app.state.shared
    return state
