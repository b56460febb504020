"""Asks hosts for missing symbol files, one host after the other and with growing pauses."""

from collections import OrderedDict
from dataclasses import dataclass, field

from icestream.process.byte_cache import ByteCache
from icestream.v1.symbols_pb2 import SymbolRequest

TIMEOUT_S = 10.0
"""How long a host has to answer before the next is asked."""
LOOK_S = 1.0
HOSTS = 8
"""Hosts remembered for each build ID."""
WANTED_BYTES = 32_000_000
"""Limit of what is known about build IDs whose symbols are missing: about 30,000 that two hosts have."""
_HOST_BYTES = 300
MAX_ATTEMPTS = 20
MAX_PAUSE_S = 3600.0
REST_S = 6 * 3600.0
"""The pause after MAX_ATTEMPTS in vain. Then all begins anew: hosts that could not answer may be back, or others have
the file now."""


@dataclass
class WantedSymbols:
    """A build ID whose symbols are missing."""

    hosts: OrderedDict[str, str] = field(default_factory=OrderedDict)  # host ID -> the path it sees the file at
    asked: str = ""
    attempt: int = 0  # since the beginning, or the last rest
    next_s: float = 0.0  # when the next host may be asked

    @property
    def rests(self) -> bool:
        """Whether nobody is asked until the rest is over."""
        return self.attempt >= MAX_ATTEMPTS


@dataclass
class SymbolRequester:
    """The build IDs that are asked for. Times are seconds of any steady clock."""

    wanted: ByteCache[str, WantedSymbols] = field(default_factory=lambda: ByteCache(WANTED_BYTES, _size))
    _next_look_s: float = 0.0

    def want(self, build_id: str, host_id: str, file: str) -> None:
        """Notes that a host has a file whose symbols are missing."""
        wanted = self.wanted.get(build_id) or WantedSymbols()
        if host_id not in wanted.hosts and (len(wanted.hosts) < HOSTS or wanted.rests):
            if len(wanted.hosts) >= HOSTS:
                wanted.hosts.popitem(last=False)
            wanted.hosts[host_id] = file
            self.wanted.put(build_id, wanted)

    def failed(self, build_id: str, host_id: str, now_s: float) -> None:
        """Notes that a host cannot provide a symbol file: the next host is asked at once."""
        wanted = self.wanted.get(build_id)
        if wanted and wanted.asked == host_id and wanted.attempt % len(wanted.hosts) and not wanted.rests:
            wanted.next_s = min(wanted.next_s, now_s)

    def has_no_names(self, build_id: str, host_id: str, now_s: float) -> None:
        """Notes that a host has the file, but without names, so that the others are asked: once each."""
        wanted = self.wanted.get(build_id)
        if wanted and wanted.attempt < len(wanted.hosts):
            self.failed(build_id, host_id, now_s)
        else:
            self.answered(build_id)

    def answered(self, build_id: str) -> None:
        """Notes that the symbols came."""
        self.wanted.pop(build_id)

    def due(self, now_s: float, now_unix_nano: int) -> list[SymbolRequest]:
        """Returns requests to send now, at most once a second. The pause doubles with every round of all hosts, up to
        MAX_PAUSE_S; after MAX_ATTEMPTS there is a rest."""
        requests: list[SymbolRequest] = []
        if now_s < self._next_look_s:
            return requests
        self._next_look_s = now_s + LOOK_S
        for build_id, wanted in self.wanted.items():
            if now_s < wanted.next_s:
                continue
            if wanted.rests:
                wanted.attempt = 0
            hosts = list(wanted.hosts)
            wanted.asked = hosts[wanted.attempt % len(hosts)]
            rounds = wanted.attempt // len(hosts)
            wanted.attempt += 1
            pause_s = REST_S if wanted.rests else min(TIMEOUT_S * 2 ** min(rounds, 20), MAX_PAUSE_S)
            wanted.next_s = now_s + pause_s
            requests.append(
                SymbolRequest(
                    build_id=build_id,
                    host_id=wanted.asked,
                    file=wanted.hosts[wanted.asked],
                    attempt=wanted.attempt,
                    requested_unix_nano=now_unix_nano,
                )
            )
        return requests


def _size(build_id: str, wanted: WantedSymbols) -> int:
    texts = sum(_HOST_BYTES + len(host_id) + len(file) for host_id, file in wanted.hosts.items())
    return _HOST_BYTES + len(build_id) + texts
