"""Settings of the query API."""

import ipaddress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from icestream.http.allowed_hosts import allowed_hosts
from icestream.settings import RequestLabelSettings, SettingError, setting


@dataclass(frozen=True, kw_only=True)
class ApiSettings(RequestLabelSettings):
    """Where to find the tables, where to listen, and how much one query may take."""

    clickhouse: str = setting(
        "http://127.0.0.1:8123/default",
        "use this ClickHouse: http(s)://USER:PASSWORD@HOST:PORT/DATABASE, or chdb:///PATH",
    )
    listen: str = setting("127.0.0.1:4060", "serve the API and the page at this HOST:PORT; port 0: any free one")
    api_allowed_hosts: str = setting(
        "",
        "allow clients to use these names for this host, besides localhost, its own name and addresses, "
        "separated by commas; a name after a dot: all names below it; *: any name",
    )
    api_own_code: str = setting(
        "",
        "take functions as own code where this regular expression (RE2) matches their name, module or source file, "
        "whatever the rules say: site-packages/(shop|cart)/",
    )
    api_library_code: str = setting(
        "", "take functions as code of libraries where this regular expression matches, as in --api-own-code"
    )
    api_sql: str = setting(
        "loopback",
        "answer SQL (read only, of all data): loopback: if --listen is an address of this machine only; always; never",
    )
    api_annotations: str = setting("loopback", "take annotations that are sent, which all see: as --api-sql")
    api_max_seconds: int = setting(20, "end a query of ClickHouse after so many seconds")
    api_max_rows: int = setting(2_000_000_000, "refuse a query that would read more rows")
    api_exact_requests: int = setting(
        3_000_000,
        "read the rows of at most so many requests for a list of requests or operations; of more, sums that were "
        "made as rows were stored",
    )
    api_max_memory: int = setting(2_000_000_000, "use at most so many bytes of ClickHouse's memory for one query")
    api_max_stacks: int = setting(2_000_000, "make one graph of at most so many different stacks")
    api_max_nodes: int = setting(200_000, "allow at most so many nodes in one answer (max_nodes of a tree)")
    api_max_concurrent: int = setting(4, "answer so many queries at the same time; others wait")
    api_max_waiting: int = setting(32, "let so many queries wait; more are refused with 503")
    api_cached_nodes: int = setting(10_000_000, "keep so many nodes of the call tree in memory, about 50 bytes each")

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed_hosts("api_allowed_hosts", self.api_allowed_hosts)
        for name in ("api_sql", "api_annotations"):
            if (value := getattr(self, name)) not in ("loopback", "always", "never"):
                raise SettingError(f"{name}: expected loopback, always or never, got {value!r}")
        for name in ("api_own_code", "api_library_code"):
            _check_pattern(name, getattr(self, name))

    def permits(self, when: str) -> bool:
        """Whether something is done, where `when` says loopback, always or never."""
        if when != "loopback":
            return when == "always"
        host = self.listen.rpartition(":")[0].strip("[]") or "127.0.0.1"
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


def _check_pattern(name: str, pattern: str) -> None:
    try:
        pc.match_substring_regex(pa.array([""]), pattern, ignore_case=True)
    except pa.ArrowInvalid as error:
        raise SettingError(f"{name}: expected a regular expression as RE2 has it: {error}") from None
