import ssl
import subprocess
from pathlib import Path

import faust
import pytest

from icestream.settings import KafkaSettings
from streams.app import credentials


def test_plain_text_needs_no_credentials() -> None:
    assert credentials(KafkaSettings()) is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_is_rendered_for_faust(mechanism: str) -> None:
    settings = KafkaSettings(
        kafka_security_protocol="SASL_PLAINTEXT", kafka_sasl_mechanism=mechanism, kafka_sasl_username="u",
        kafka_sasl_password="p",
    )  # fmt: skip
    rendered = credentials(settings)
    assert isinstance(rendered, faust.SASLCredentials)
    assert (rendered.username, rendered.password, rendered.mechanism.value) == ("u", "p", mechanism)
    assert rendered.protocol.value == "SASL_PLAINTEXT"


def test_tls_is_rendered_for_faust_with_the_clients_certificate(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"]
    subprocess.run([*new, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    settings = KafkaSettings(
        kafka_security_protocol="SSL", kafka_ssl_ca=str(certificate), kafka_ssl_certificate=str(certificate),
        kafka_ssl_key=str(key),
    )  # fmt: skip
    rendered = credentials(settings)
    assert isinstance(rendered, faust.SSLCredentials)
    assert isinstance(rendered.context, ssl.SSLContext)
    assert len(rendered.context.get_ca_certs()) == 1
    both = credentials(KafkaSettings(kafka_security_protocol="SASL_SSL", kafka_ssl_ca=str(certificate)))
    assert both.protocol.value == "SASL_SSL"
