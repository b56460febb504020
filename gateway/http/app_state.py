"""What all routes share: the application's `app.state.shared`."""

from dataclasses import dataclass

from fastapi import Request

from gateway.intake import Intake
from gateway.publisher import BatchPublisher
from gateway.settings import GatewaySettings


@dataclass(frozen=True)
class GatewayState:
    settings: GatewaySettings
    publisher: BatchPublisher
    intake: Intake


async def app_state(request: Request) -> GatewayState:
    """For routes, as a dependency."""
    state: GatewayState = request.app.state.shared
    return state
