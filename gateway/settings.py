"""Settings of the gateway."""

from dataclasses import dataclass

from gateway.readers.otlp_revision import REVISIONS
from icestream.http.allowed_hosts import allowed_hosts
from icestream.kafka.producer_settings import ProducerSettings
from icestream.settings import MessageSettings, SettingError, setting

_MB = 10**6


@dataclass(frozen=True, kw_only=True)
class IntakeSettings(ProducerSettings, MessageSettings):
    """How profiles are taken, whether they are sent or scraped."""

    gateway_body_mb: int = setting(
        68, "largest body of a request, or answer of a target, in MB, as it is sent; 64 MiB, which OTLP recommends, fit"
    )
    gateway_unpacked_mb: int = setting(68, "largest body, and largest profile, in MB after it was decompressed")
    gateway_reading_mb: int = setting(
        2000,
        "MB that the bodies that are read at the same time may take in memory, as estimated; further ones are answered "
        "with 503",
    )
    gateway_ack_s: float = setting(10.0, "seconds that Kafka may take to acknowledge; then the answer is 503")
    gateway_max_series: int = setting(
        1000,
        "sets of labels that the samples of one profile may have; the samples of further sets lose their own labels",
    )
    gateway_service_series: int = setting(
        50_000, "sets of labels that a service may have in an hour; the samples of further sets keep only the service"
    )
    gateway_scrape_targets: int = setting(1000, "targets of all scrape jobs; further ones are not scraped")
    gateway_scrape_at_once: int = setting(64, "answers of targets that are read at the same time")
    gateway_scrape_waiting_mb: int = setting(
        64, "MB of scraped profiles that may wait for Kafka in memory; beyond that, the oldest are dropped"
    )

    def __post_init__(self) -> None:
        for name, low, high in (
            ("gateway_body_mb", 1, 1024),
            ("gateway_unpacked_mb", 1, 1024),
            ("gateway_reading_mb", 1, 1_000_000),
            ("gateway_ack_s", 0.1, 600),
            ("gateway_max_series", 1, 50_000),
            ("gateway_service_series", 1, 500_000),
            ("most_operations", 1, 100_000),
            ("gateway_scrape_targets", 1, 100_000),
            ("gateway_scrape_at_once", 1, 10_000),
            ("gateway_scrape_waiting_mb", 1, 100_000),
        ):
            self._check(name, low, high)

    @property
    def body_bytes(self) -> int:
        return self.gateway_body_mb * _MB

    @property
    def unpacked_bytes(self) -> int:
        return self.gateway_unpacked_mb * _MB

    @property
    def reading_bytes(self) -> int:
        return self.gateway_reading_mb * _MB

    @property
    def scrape_waiting_bytes(self) -> int:
        return self.gateway_scrape_waiting_mb * _MB

    def _check(self, name: str, low: float, high: float) -> None:
        if not low <= getattr(self, name) <= high:
            raise SettingError(f"{name}: expected {low} to {high}, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class ScrapeSettings(IntakeSettings):
    """What `icestream scrape` takes."""

    metrics_listen: str = setting("127.0.0.1:4066", "HOST:PORT of /metrics, /healthz and /readyz; empty: none")


@dataclass(frozen=True, kw_only=True)
class GatewaySettings(IntakeSettings):
    """What `icestream gateway` takes."""

    gateway_listen: str = setting("127.0.0.1:4040", "HOST:PORT to take profiles on; port 0: any free one")
    gateway_grpc_listen: str = setting(
        "127.0.0.1:4317", "HOST:PORT to take OTLP/gRPC on; port 0: any free one; empty: none"
    )
    gateway_tls_cert_file: str = setting(
        "", "file of the certificate for HTTP and gRPC, and of those that it builds on, PEM; empty: no TLS"
    )
    gateway_tls_key_file: str = setting("", "file of its key, PEM, without a passphrase")
    gateway_tls_client_ca_file: str = setting(
        "", "file of CA certificates, PEM: clients must have a certificate of one of them; empty: they need none"
    )
    gateway_allowed_hosts: str = setting(
        "",
        "names that senders may use for this host over HTTP, besides localhost, its own name and addresses, separated "
        "by commas; a name after a dot: all names below it; *: any name",
    )
    gateway_max_requests: int = setting(64, "requests that are worked on at once; more of them are answered with 503")
    gateway_body_s: float = setting(30.0, "seconds within which the body of a request must have come")
    gateway_scrape: str = setting("", "YAML file of scrape jobs; empty: nothing is scraped")
    gateway_profiles_topic: str = setting(
        "", "topic with profiles of an OpenTelemetry Collector (otlp_proto) to read, such as otlp_profiles; empty: none"
    )
    gateway_profiles_revision: int = setting(
        1,
        "revision of OTLP profiles of the messages in that topic that have no header otlp-profiles-development-version",
    )
    gateway_spans_topic: str = setting(
        "", "topic with spans of an OpenTelemetry Collector (otlp_proto) to read, such as otlp_spans; empty: none"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("gateway_max_requests", 1, 10_000)
        self._check("gateway_body_s", 0.1, 3600)
        if self.gateway_profiles_revision not in REVISIONS:
            expected = " or ".join(map(str, REVISIONS))
            raise SettingError(f"gateway_profiles_revision: expected {expected}, got {self.gateway_profiles_revision}")
        allowed_hosts("gateway_allowed_hosts", self.gateway_allowed_hosts)
        if bool(self.gateway_tls_cert_file) != bool(self.gateway_tls_key_file):
            raise SettingError("gateway_tls_cert_file, gateway_tls_key_file: expected both or none, got one")
        if self.gateway_tls_client_ca_file and not self.gateway_tls_cert_file:
            raise SettingError("gateway_tls_client_ca_file: expected a gateway_tls_cert_file as well, got none")
