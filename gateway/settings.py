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
        68,
        "refuse a body of a request, or an answer of a target, of more MB, as it is sent; 64 MiB, which "
        "OTLP recommends, fit",
    )
    gateway_unpacked_mb: int = setting(68, "refuse a body, or a profile, of more MB after it was decompressed")
    gateway_reading_mb: int = setting(
        2000,
        "use at most so many MB of memory, as estimated, for the bodies that are read at the same time; "
        "further ones are answered with 503",
    )
    gateway_ack_s: float = setting(10.0, "wait so many seconds for Kafka to acknowledge; then the answer is 503")
    gateway_max_series: int = setting(
        1000,
        "keep at most so many sets of labels of the samples of one profile; the samples of further sets "
        "lose their own labels",
    )
    gateway_service_series: int = setting(
        50_000,
        "keep at most so many sets of labels of a service in an hour; the samples of further sets keep "
        "only the service",
    )
    gateway_scrape_targets: int = setting(
        1000, "scrape at most so many targets of all jobs; further ones are not scraped"
    )
    gateway_scrape_at_once: int = setting(64, "read so many answers of targets at the same time")
    gateway_scrape_waiting_mb: int = setting(
        64,
        "keep at most so many MB of scraped profiles that wait for Kafka in memory; beyond that, the "
        "oldest are dropped",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
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

    metrics_listen: str = setting(
        "127.0.0.1:4066", "serve /metrics, /healthz and /readyz at this HOST:PORT; empty: none"
    )


@dataclass(frozen=True, kw_only=True)
class GatewaySettings(IntakeSettings):
    """What `icestream gateway` takes."""

    gateway_listen: str = setting("127.0.0.1:4040", "take profiles at this HOST:PORT; port 0: any free one")
    gateway_grpc_listen: str = setting(
        "127.0.0.1:4317", "take OTLP/gRPC at this HOST:PORT; port 0: any free one; empty: none"
    )
    gateway_tls_cert_file: str = setting(
        "", "use the certificate in this file for HTTP and gRPC, with those that it builds on, PEM; empty: no TLS"
    )
    gateway_tls_key_file: str = setting("", "use its key in this file, PEM, without a passphrase")
    gateway_tls_client_ca_file: str = setting(
        "", "ask clients for a certificate of one of the CAs in this file, PEM; empty: they need none"
    )
    gateway_allowed_hosts: str = setting(
        "",
        "allow senders to use these names for this host over HTTP, besides localhost, its own name and "
        "addresses, separated by commas; a name after a dot: all names below it; *: any name",
    )
    gateway_max_requests: int = setting(64, "work on so many requests at once; more of them are answered with 503")
    gateway_body_s: float = setting(30.0, "refuse a request whose body has not come within so many seconds")
    gateway_scrape: str = setting("", "scrape the jobs in this YAML file; empty: nothing is scraped")
    gateway_profiles_topic: str = setting(
        "",
        "read profiles of an OpenTelemetry Collector (otlp_proto) from this topic, such as otlp_profiles; empty: none",
    )
    gateway_profiles_revision: int = setting(
        1,
        "read messages in that topic without a header otlp-profiles-development-version as this revision "
        "of OTLP profiles",
    )
    gateway_spans_topic: str = setting(
        "", "read spans of an OpenTelemetry Collector (otlp_proto) from this topic, such as otlp_spans; empty: none"
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
