"""Settings of a gateway that scrapes."""

import pytest

from gateway.settings import GatewaySettings
from icestream.settings import KafkaSettings
from tests.waiting import PATIENCE_S


@pytest.fixture
def settings(in_process_broker: KafkaSettings) -> GatewaySettings:
    kafka = in_process_broker.kafka
    return GatewaySettings(kafka=kafka, gateway_body_mb=1, gateway_unpacked_mb=2, gateway_ack_s=PATIENCE_S)
