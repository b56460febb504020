"""Settings of the query API."""

from dataclasses import dataclass

from icestream.http.allowed_hosts import allowed_hosts
from icestream.settings import Settings, setting


@dataclass(frozen=True, kw_only=True)
class ApiSettings(Settings):
    """Where to find the tables, where to listen, and how much one query may take."""

    clickhouse: str = setting(
        "http://127.0.0.1:8123/default", "ClickHouse: http(s)://USER:PASSWORD@HOST:PORT/DATABASE, or chdb:///PATH"
    )
    listen: str = setting("127.0.0.1:4060", "HOST:PORT to serve the API and the page on; port 0: any free one")
    api_allowed_hosts: str = setting(
        "",
        "names that clients may use for this host, besides localhost, its own name and addresses, separated by commas; "
        "a name after a dot: all names below it; *: any name",
    )
    api_max_seconds: int = setting(20, "seconds that one query of ClickHouse may take")
    api_max_rows: int = setting(2_000_000_000, "rows that one query may read")
    api_exact_requests: int = setting(
        3_000_000,
        "requests whose rows are read for a list of requests or operations; of more, sums are read that were made as "
        "rows were stored",
    )
    api_max_memory: int = setting(2_000_000_000, "bytes of memory that ClickHouse may use for one query")
    api_max_stacks: int = setting(2_000_000, "different stacks that one graph may be made of")
    api_max_nodes: int = setting(200_000, "nodes that one answer may have (max_nodes of a tree)")
    api_max_concurrent: int = setting(4, "queries to answer at the same time; others wait")
    api_max_waiting: int = setting(32, "queries that may wait; more are refused with 503")
    api_cached_nodes: int = setting(10_000_000, "nodes of the call tree to keep in memory, about 50 bytes each")

    def __post_init__(self) -> None:
        allowed_hosts("api_allowed_hosts", self.api_allowed_hosts)
