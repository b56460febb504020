"""What routes work with; on the application as `app.state.context`."""

from dataclasses import dataclass

from fastapi import Request

from api.database import Database
from api.settings import ApiSettings
from api.stacks import Stacks


@dataclass(frozen=True)
class Context:
    settings: ApiSettings
    database: Database
    stacks: Stacks


def context(request: Request) -> Context:
    found: Context = request.app.state.context
    return found
