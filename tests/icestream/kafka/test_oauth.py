"""OAUTHBEARER: tokens from a file and from a token endpoint, with both Kafka clients."""

import asyncio
import base64
import http.server
import json
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import faust
import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka.admin import AdminClient
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

from icestream.kafka import clients, oauth
from icestream.kafka.oauth import TokenError
from icestream.settings import KafkaSettings, SettingError
from standalone.supervisor.local_kafka import CONFIGURATION, LocalKafka
from streams.app import credentials
from tests.conftest import close_clients
from tests.ports import free_port

JAAS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=broker;"
)


def unsigned(**claims: object) -> str:
    """A JWT that is not signed."""
    parts = ({"alg": "none"}, {"sub": "icestream", "iat": time.time() - 1} | claims)
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


@contextmanager
def endpoint(status: int, body: bytes) -> Iterator[tuple[str, list[tuple[str, dict[str, list[str]]]]]]:
    """A token endpoint; yields its address and what it was asked."""
    asked: list[tuple[str, dict[str, list[str]]]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append((self.headers["Authorization"], urllib.parse.parse_qs(form)))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/token", asked
    server.shutdown()
    server.server_close()


def test_a_token_file_is_read_each_time_and_says_when_the_token_expires(tmp_path: Path) -> None:
    file = tmp_path / "token"
    settings = KafkaSettings(kafka_oauth_token_file=str(file))
    with pytest.raises(TokenError, match="cannot read the token file"):
        oauth.token(settings)
    for expires in (2_000_000_000, 2_000_000_600):
        value = unsigned(exp=expires)
        file.write_text(value + "\n")
        assert oauth.token(settings) == (value, expires)
    for opaque in ("opaque", "a.b.c", "a." + base64.b64encode(b"[]").decode() + ".c"):
        file.write_text(opaque)
        assert oauth.token(settings).value == opaque
        assert 0 < oauth.token(settings).expires_unix_s - time.time() <= 300


def test_a_token_endpoint_is_asked_with_the_clients_id_and_secret() -> None:
    answer = {"access_token": "T", "token_type": "Bearer", "expires_in": 60}
    with endpoint(200, json.dumps(answer).encode()) as (url, asked):
        settings = KafkaSettings(
            kafka_oauth_token_url=url, kafka_oauth_scope="kafka", kafka_sasl_username="me",
            kafka_sasl_password="s:ecret",
        )  # fmt: skip
        found = oauth.token(settings)
    assert found.value == "T"
    assert 0 < found.expires_unix_s - time.time() <= 60
    ((authorization, form),) = asked
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"me:s%3Aecret"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}


@pytest.mark.parametrize(("status", "body"), [(401, b"{}"), (200, b"<html>"), (200, b"{}"), (200, b"[]")])
def test_an_endpoint_that_gives_no_token_is_told(status: int, body: bytes) -> None:
    with endpoint(status, body) as (url, _), pytest.raises(TokenError, match="no token from http"):
        oauth.token(KafkaSettings(kafka_oauth_token_url=url))


def test_a_mechanism_without_a_source_is_a_wrong_setting() -> None:
    with pytest.raises(SettingError, match="kafka_oauth_token_file or kafka_oauth_token_url"):
        oauth.token(KafkaSettings())
    with pytest.raises(SettingError, match="http or https"):
        oauth.token(KafkaSettings(kafka_oauth_token_url="file:///etc/passwd"))


@pytest.mark.kafka
def test_both_clients_reach_a_kafka_that_wants_a_token(kafka_in_id: None, tmp_path: Path) -> None:
    port = free_port()
    template = (CONFIGURATION / "server.properties").read_text()
    listener = f",OAUTH://127.0.0.1:{port}"
    for name in ("listeners=CLIENTS://127.0.0.1:{port}", "advertised.listeners=CLIENTS://127.0.0.1:{port}"):
        template = template.replace(f"\n{name}", f"\n{name}{listener}")
    template = template.replace("CONTROLLER:{protocol}", "CONTROLLER:{protocol},OAUTH:SASL_PLAINTEXT")
    template += "\nlistener.name.oauth.sasl.enabled.mechanisms=OAUTHBEARER"
    template += f"\nlistener.name.oauth.oauthbearer.sasl.jaas.config={JAAS}\n"
    (tmp_path / "server.properties").write_text(template)
    file = tmp_path / "token"
    settings = KafkaSettings(
        kafka=f"127.0.0.1:{port}", kafka_security_protocol="SASL_PLAINTEXT", kafka_sasl_mechanism="OAUTHBEARER",
        kafka_oauth_token_file=str(file),
    )  # fmt: skip
    running = LocalKafka(tmp_path / "data", template=tmp_path / "server.properties")
    running.start()
    try:
        file.write_text(unsigned(exp=time.time() + 3600))
        admin = AdminClient(clients.client_config(settings))
        assert admin.list_topics(timeout=300).brokers
        sender, reader = clients.producer(settings), clients.consumer(settings, "test")
        assert sender.list_topics(timeout=300).brokers
        assert reader.list_topics(timeout=300).brokers
        assert asyncio.run(topics_by_aiokafka(settings)) is not None
    finally:
        close_clients()
        running.close()


async def topics_by_aiokafka(settings: KafkaSettings) -> set[str]:
    given = credentials(settings)
    assert isinstance(given, faust.OAuthCredentials)
    client = AIOKafkaConsumer(bootstrap_servers=settings.kafka, **credentials_to_aiokafka_auth(given))
    await client.start()
    try:
        found: set[str] = await client.topics()
        return found
    finally:
        await client.stop()
