"""What routes work with; on the application as `app.state.context`."""

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request

from api.queries.database import Database
from api.settings import ApiSettings
from api.tree.stack_cache import Stacks


@dataclass(frozen=True)
class Context:
    settings: ApiSettings
    database: Database
    stacks: Stacks
    also_ready: Callable[[], str | None]
    """What else the process does: None when that can be done, else why not."""


def context(request: Request) -> Context:
    found: Context = request.app.state.context
    return found
