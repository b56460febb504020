"""Settings of what runs on one machine."""

from dataclasses import dataclass

from api.settings import ApiSettings
from icestream.settings import DataSettings, KafkaSettings, setting
from jobs.settings import JobSettings
from sinks.settings import SinkSettings


@dataclass(frozen=True, kw_only=True)
class StoreSettings(JobSettings, SinkSettings, ApiSettings):
    """What `icestream store` takes: the settings of the sinks, of the jobs that it runs for others, and of the API."""


@dataclass(frozen=True, kw_only=True)
class UpSettings(KafkaSettings, DataSettings):
    """What `icestream up` takes. Its parts also read their own settings from the environment."""

    listen: str = setting("127.0.0.1:4060", "serve the API and the page at this HOST:PORT; port 0: any free one")
    gateway: bool = setting(True, "take in profiles of other tools")
    gateway_listen: str = setting(
        "127.0.0.1:4040", "serve the gateway at this HOST:PORT; another free port if it is taken, and if it is 0"
    )
    gateway_grpc_listen: str = setting(
        "127.0.0.1:4317", "serve OTLP/gRPC at this HOST:PORT; another free port if it is taken, and if it is 0"
    )
    gateway_scrape: str = setting("", "scrape the jobs in this YAML file; empty: nothing is scraped")
    kafka: str = setting("", "connect to Kafka at this HOST:PORT; by default `icestream up` starts a broker")
    clickhouse: str = setting(
        "", "use this ClickHouse, http://USER:PASSWORD@HOST:8123/DATABASE; by default the embedded engine"
    )
    frequency: int = setting(19, "take so many samples per second and CPU")
    collector: bool = setting(True, "profile this machine")
    lake: str = setting(
        "", "write the lake (Delta tables) to this folder or URI (s3://, gs://, az://); empty: write none"
    )
    metrics_listen: str = setting(
        "127.0.0.1:4064",
        "serve the supervisor's /metrics, /healthz and /readyz at this HOST:PORT; port 0: any free port, "
        "for the parts too; empty: none",
    )
    activity_socket: str = setting(
        "",
        "receive activity of applications at this socket; by default /run/icestream/activity.sock, where "
        "they look for it, and activity.sock under --data if this user cannot use that one or another "
        "collector does",
    )
    user: str = setting(
        "",
        "run all parts but the collector as this user if root starts them; by default icestream where "
        "that user exists, else nobody; root: all parts run as root",
    )
    local_kafka: bool = setting(
        True, "start Apache Kafka if no Kafka is given and `icestream kafka --fetch` has fetched its jars"
    )
