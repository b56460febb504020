"""What Pyroscope's older SDKs say in the parameters of /ingest (grafana.com/docs/pyroscope, "Server API")."""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.errors import Refused, unsupported
from gateway.labels import to_labels
from gateway.profile_types import COUNT, CPU, ValueType
from gateway.readers.folded import read_folded
from gateway.readers.pprof import Source, read_pprof
from gateway.readers.speedscope import read_speedscope
from gateway.reading_memory import Reading, json_elements, text_elements
from gateway.sent_profile import SentProfile
from icestream.times import TimeError, parse_unix_nano

_TEXT = ("folded", "collapsed", "groups", "")
_NAME = re.compile(r"([^{}]+)(?:\{(.*)\})?", re.DOTALL)
_SECOND_NS = 10**9
_UNITS = {
    "bytes": ("memory", ValueType("alloc_space", "bytes")),
    "objects": ("memory", ValueType("alloc_objects", "count")),
    "goroutines": ("goroutines", ValueType("goroutine", "count")),
    "lock_nanoseconds": ("mutex", ValueType("delay", "nanoseconds")),
    "lock_samples": ("mutex", ValueType("contentions", "count")),
}
"""The profile name and sample type by the unit of folded text, and of Speedscope files without one. With other units,
values are samples of CPU, `sampleRate` a second."""
_AVERAGED = {
    "bytes": ("memory", ValueType("inuse_space", "bytes")),
    "objects": ("memory", ValueType("inuse_objects", "count")),
}
"""The same with `aggregationType=average`, which says that values are what there is at a moment."""

_HINTS = {
    "jfr": "set PYROSCOPE_FORMAT=otlp and PYROSCOPE_SERVER_ADDRESS=http://GATEWAY:4040?service=NAME for Pyroscope's "
    "Java agent (docs/gateway.md); others: send pprof, folded, lines or speedscope"
}


@dataclass(frozen=True)
class Parts:
    """The parts of a body: files by name; the body itself is called profile."""

    files: Mapping[str, bytes]

    @property
    def profile(self) -> bytes:
        return self.files.get("profile", b"")


def read_ingested(parts: Parts, given: Mapping[str, str], max_series: int, reading: Reading) -> SentProfile:
    """Reads one profile. Raises Refused."""
    source = _source(given)
    kind = given.get("format", "").lower()
    if kind == "pprof" or (kind == "" and "sample_type_config" in parts.files):
        if parts.files.get("prev_profile"):
            raise unsupported("prev_profile is not read", "a newer SDK sends deltas, without the profile before")
        configuration = reading.before_reading(parts.files.get("sample_type_config", b"{}"), json_elements)
        return read_pprof(reading.before_reading(parts.profile), _named(source, configuration), max_series)
    if kind == "speedscope":
        name, value_type = _unit(given) or ("", COUNT)
        data = reading.before_reading(parts.profile, json_elements)
        return read_speedscope(data, dataclasses.replace(source, name=name), value_type)
    if kind in _TEXT or kind == "lines":
        name, value_type = _unit(given) or ("process_cpu", CPU)
        scale = _SECOND_NS // _rate(given) if name == "process_cpu" else 1
        source = dataclasses.replace(source, name=name)
        data = reading.before_reading(parts.profile, text_elements)
        return read_folded(data, source, value_type, scale, counted=kind != "lines")
    raise unsupported(
        f"the format {kind[:40]} is not read", _HINTS.get(kind, "send pprof, folded, lines or speedscope")
    )


def _unit(given: Mapping[str, str]) -> tuple[str, ValueType] | None:
    """Returns the name of the profile and the type of its values. Raises Refused."""
    aggregation = given.get("aggregationType", "") or "sum"
    if aggregation not in ("sum", "average"):
        raise Refused(400, "bad_labels", f"aggregationType: expected sum or average, got {aggregation[:40]!r}")
    unit = given.get("units", "")
    return (aggregation == "average" and _AVERAGED.get(unit)) or _UNITS.get(unit)


def _source(given: Mapping[str, str]) -> Source:
    match = _NAME.fullmatch(given.get("name", "").strip())
    if match is None:
        raise Refused(400, "bad_labels", "expected the parameter name, as in name=checkout{region=eu}")
    pairs = [pair.partition("=") for pair in (match[2] or "").split(",") if pair]
    dropped = Counter[str]()
    own = [(name.strip(), value.strip()) for name, _, value in pairs]
    labels = to_labels([("service", match[1].strip()), *own], dropped)
    return Source(labels, "", _time(given, "from"), _time(given, "until"), dropped)


def _named(source: Source, configuration: bytes) -> Source:
    """Returns the source with the name of a mutex or block profile of Go. Both have the same sample types; the SDK's
    configuration says which one it is."""
    try:
        names = {str(one.get("display-name", "")) for one in json.loads(configuration).values()}
    except (ValueError, AttributeError, RecursionError):
        return source
    name = next((name for name in ("mutex", "block") if any(one.startswith(name) for one in names)), "")
    return dataclasses.replace(source, name=name)


def _time(given: Mapping[str, str], name: str) -> int:
    """Returns Unix nanoseconds; 0 where the parameter is missing. Numbers may be seconds or smaller units."""
    text = given.get(name, "").strip()
    if not text:
        return 0
    if text.isdecimal() and len(text) <= 19:
        number = int(text)
        unit = next(unit for limit, unit in ((11, 10**9), (14, 10**6), (17, 10**3), (20, 1)) if len(text) <= limit)
        return number * unit
    try:
        return parse_unix_nano(text)
    except TimeError as error:
        raise Refused(400, "bad_labels", f"{name}: {error}") from None


def _rate(given: Mapping[str, str]) -> int:
    text = given.get("sampleRate", "100")
    if not text.isdecimal() or len(text) > 7 or not 0 < int(text) <= 10**6:
        raise Refused(400, "bad_labels", f"sampleRate: expected 1 to 1000000, got {text[:40]!r}")
    return int(text)
