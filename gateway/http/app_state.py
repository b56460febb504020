"""What all routes share: the application's `app.state.shared`."""

from dataclasses import dataclass

from fastapi import Request

from gateway.intake import Intake
from gateway.publisher import Publisher
from gateway.settings import GatewaySettings


@dataclass(frozen=True)
class AppState:
    settings: GatewaySettings
    publisher: Publisher
    intake: Intake


async def app_state(request: Request) -> AppState:
    """For routes, as a dependency."""
    state: AppState = request.app.state.shared
    return state
