"""grpc.health.v1.Health with a real client, beside /readyz."""

import urllib.error
import urllib.request
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from gateway import grpc_health
from gateway.grpc_server import PROFILES, TRACES
from gateway.settings import GatewaySettings
from icestream.settings import KafkaSettings
from icestream.topics import RAW
from tests.brokers import Brokers
from tests.gateway.served import Ports, serve_on_ports
from tests.waiting import PATIENCE_S, wait_until

SERVING, NOT_SERVING = HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING


def settings_of(kafka: KafkaSettings) -> GatewaySettings:
    return GatewaySettings(kafka=kafka.kafka, gateway_grpc_listen="127.0.0.1:0")


def request_of(service: str = "") -> HealthCheckRequest:
    return HealthCheckRequest(service=service)


def statuses(health: HealthStub) -> set[int]:
    """What `Check` says of everything that has a status."""
    return {health.Check(request_of(service), timeout=PATIENCE_S).status for service in ("", PROFILES, TRACES)}


def readyz(ports: Ports) -> int:
    try:
        with urllib.request.urlopen(f"http://{ports.http}/readyz", timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    brokers = Brokers([RAW], 1)
    yield brokers
    brokers.close()


@pytest.mark.slow
def test_it_serves_while_kafka_is_there_and_whoever_watches_learns_of_each_change(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_health, "_WATCH_S", 0.05)
    with serve_on_ports(settings_of(brokers.settings)) as ports, grpc.insecure_channel(ports.grpc) as channel:
        health = HealthStub(channel)
        watched = health.Watch(request_of(TRACES), timeout=PATIENCE_S)

        def become(status: int, of_readyz: int) -> None:
            while next(watched).status != status:
                pass
            wait_until(lambda: (statuses(health), readyz(ports)) == ({status}, of_readyz))

        become(SERVING, 200)
        brokers.set_down(1)
        become(NOT_SERVING, 503)
        brokers.set_up(1)
        become(SERVING, 200)


def test_a_service_that_it_does_not_have_is_unknown(brokers: Brokers) -> None:
    with serve_on_ports(settings_of(brokers.settings)) as ports, grpc.insecure_channel(ports.grpc) as channel:
        health = HealthStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            health.Check(request_of("other"), timeout=PATIENCE_S)
        assert refused.value.code() == grpc.StatusCode.NOT_FOUND  # type: ignore[attr-defined]
        assert TRACES in refused.value.details()  # type: ignore[attr-defined]
        watched = health.Watch(request_of("other"), timeout=PATIENCE_S)
        assert next(watched).status == HealthCheckResponse.SERVICE_UNKNOWN


def test_whoever_watches_does_not_hold_up_the_end(brokers: Brokers) -> None:
    with serve_on_ports(settings_of(brokers.settings)) as ports:
        channel = grpc.insecure_channel(ports.grpc)
        watched = HealthStub(channel).Watch(request_of(), timeout=PATIENCE_S)
        assert next(watched).status in (SERVING, NOT_SERVING)
    list(watched)  # it ends without an error
    channel.close()
