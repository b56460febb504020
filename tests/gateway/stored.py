"""Profiles as they come out of the API again: through the operators, the sink and the tables."""

import gzip
import itertools
from collections import Counter
from typing import Any

from fastapi.testclient import TestClient

from gateway.encode import Encoded, encode
from gateway.sent_profile import SentProfile
from icestream.clickhouse.client import Clients
from icestream.messages.message_id import MessageId
from icestream.messages.plausible import ANY_TIME
from icestream.pprof.profile_pb2 import Profile
from icestream.topics import RAW, SAMPLES, STACKS
from sinks.clickhouse.sink import ClickHouseSink
from sinks.runner.ranges import InFlight, MessageRange
from sinks.tables.dead_letters import DeadLetter
from sinks.tables.decode import Tables, decode
from streams.operators.symbolize import Symbolizer
from streams.partition.process import Operators, Processor

Line = tuple[str, str, int, int]  # function, file, line, start line
Frame = tuple[str, int, tuple[Line, ...]]  # build ID, ELF address where it has no lines, lines
Values = Counter[tuple[Frame, ...]]  # leaf first


class Store:
    """What streams and the ClickHouse sink do, in one process, and the query API over it."""

    def __init__(self, clients: Clients, http: TestClient) -> None:
        self.http = http
        self.client = clients.get()
        self._sink = ClickHouseSink(clients)
        self._processor = Processor(Operators(symbolize=Symbolizer(None).names))
        self._offsets = itertools.count()

    def take(self, profile: SentProfile) -> Encoded:
        encoded = encode(profile, ANY_TIME)
        for message in encoded.messages:
            self.add(message)
        return encoded

    def add(self, message: bytes) -> None:
        """A message of icestream.raw."""
        offset = next(self._offsets)
        outputs = self._processor.raw(message, MessageId("C", RAW, 0, offset))
        for topic, values in ((STACKS, outputs.stacks), (SAMPLES, outputs.samples)):
            tables = [decode(value, MessageId("C", topic, 0, offset)) for value in values]
            if tables:
                self.write(MessageRange("C", topic, 0, InFlight.new(offset, offset), tables, False))

    def write(self, messages: MessageRange[Tables | DeadLetter]) -> None:
        """Stores messages of an output topic."""
        self._sink.write(messages)

    def json(self, path: str, **parameters: str) -> Any:
        answer = self.http.get(path, params=parameters)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def pprof(self, selector: str, profile_type: str, start: str, end: str) -> Profile:
        parameters = {"selector": selector, "profile_type": profile_type, "start": start, "end": end, "format": "pprof"}
        answer = self.http.get("/api/v1/merge", params=parameters)
        assert answer.status_code == 200, answer.text
        data = answer.content
        return Profile.FromString(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def values(profile: Profile, column: int) -> Values:
    """The sums of a column of values by stack, with what a stack says without the IDs of the profile."""
    strings = profile.string_table
    functions = {function.id: function for function in profile.function}
    build_ids = {mapping.id: strings[mapping.build_id] for mapping in profile.mapping}
    starts = {mapping.id: mapping.memory_start for mapping in profile.mapping if mapping.memory_start >= 2**32}
    frames: dict[int, Frame] = {}
    for location in profile.location:
        lines = tuple(
            (strings[f.name], strings[f.filename], line.line, f.start_line)
            for line in location.line
            for f in [functions[line.function_id]]
        )
        build_id = build_ids.get(location.mapping_id, "")
        unnamed = not lines or f"+{location.address:#x}" in lines[0][0]
        address = location.address - starts.get(location.mapping_id, 0)
        frames[location.id] = (build_id, address if unnamed else 0, () if unnamed else lines)
    found: Values = Counter()
    for sample in profile.sample:
        if sample.value[column]:
            found[tuple(frames[location] for location in sample.location_id)] += sample.value[column]
    return found
