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

    listen: str = setting("127.0.0.1:4060", "HOST:PORT of the API and the page; port 0: any free one")
    gateway: bool = setting(True, "take in profiles of other tools")
    gateway_listen: str = setting(
        "127.0.0.1:4040", "HOST:PORT of the gateway; another free port if it is taken, and if it is 0"
    )
    gateway_grpc_listen: str = setting(
        "127.0.0.1:4317", "HOST:PORT of the gateway's OTLP/gRPC; another free port if it is taken, and if it is 0"
    )
    gateway_scrape: str = setting("", "YAML file of scrape jobs, for the gateway; empty: nothing is scraped")
    kafka: str = setting("", "HOST:PORT of a Kafka to use; by default `icestream up` starts a broker")
    clickhouse: str = setting(
        "", "ClickHouse to use, http://USER:PASSWORD@HOST:8123/DATABASE; by default the embedded engine"
    )
    frequency: int = setting(19, "samples per second and CPU")
    collector: bool = setting(True, "profile this machine")
    parquet: str = setting("", "folder or URI (s3://, gs://, az://) of the Delta tables; empty: write none")
    metrics_listen: str = setting(
        "127.0.0.1:4064",
        "HOST:PORT of the supervisor's /metrics, /healthz and /readyz; port 0: any free port, for the parts too; "
        "empty: none",
    )
    activity_socket: str = setting(
        "",
        "socket that applications report activity to; by default /run/icestream/activity.sock, where they look for it, "
        "and activity.sock under --data if this user cannot use that one or another collector does",
    )
    user: str = setting(
        "",
        "user who runs all parts but the collector if root starts them; by default icestream where that user exists, "
        "else nobody; root: all parts run as root",
    )
    local_kafka: bool = setting(True, "start Apache Kafka if no Kafka is given and `make kafka` has fetched its jars")
