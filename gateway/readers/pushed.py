"""Reads what Pyroscope's SDKs and Alloy push (schemas/icestream/pyroscope/push.proto): pprof profiles with labels."""

import base64
from collections import Counter

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from gateway.errors import Refused, bad_profile, too_many
from gateway.labels import to_labels
from gateway.readers import valid_texts
from gateway.readers.pprof import Source, read_pprof
from gateway.reading_memory import Reading
from gateway.sent_profile import MAX_PROFILES, SentProfiles
from gateway.unpack import unpack
from icestream.pyroscope.push_pb2 import PushRequest

_NAME = "__name__"


def parse_push(body: bytes, is_json: bool) -> PushRequest:
    """Raises Refused."""
    try:
        if not is_json:
            return valid_texts.parse(PushRequest, body)
        return json_format.ParseDict(valid_texts.load_object(body), PushRequest(), ignore_unknown_fields=True)
    except (DecodeError, json_format.ParseError, ValueError, TypeError, RecursionError) as error:
        raise bad_profile(f"no PushRequest: {error}") from None


def parse_write_raw(body: bytes) -> PushRequest:
    """Parca's WriteRawRequest in JSON, whose labels are one level deeper. Raises Refused."""
    try:
        data = valid_texts.load_object(body)
        request = PushRequest()
        for one in data.get("series", []):
            series = request.series.add()
            for label in one.get("labels", {}).get("labels", []):
                series.labels.add(name=label.get("name", ""), value=label.get("value", ""))
            for sample in one.get("samples", []):
                raw = sample.get("rawProfile", sample.get("raw_profile", ""))
                series.samples.add(raw_profile=base64.b64decode(raw, validate=True))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise bad_profile(f"no WriteRawRequest: {error}") from None
    return request


def read_push(request: PushRequest, unpacked_bytes: int, max_series: int, reading: Reading) -> SentProfiles:
    """Reads the profiles; together they are unpacked to at most `unpacked_bytes`. Raises Refused beyond that."""
    pushed = SentProfiles()
    if (count := sum(len(series.samples) for series in request.series)) > MAX_PROFILES:
        raise too_many(MAX_PROFILES, f"profiles, got {count}")
    room = unpacked_bytes
    for series in request.series:
        given = [(label.name, label.value) for label in series.labels]
        names = dict(given)
        dropped = Counter[str]()  # of what these profiles share: told with the first one
        labels = to_labels([("service", "unknown_service"), *given], dropped)
        for sample in series.samples:
            try:
                data = unpack(sample.raw_profile, room)
                room -= len(data)
                source = Source(labels, names.get(_NAME, ""), dropped=dropped)
                pushed.profiles.append(read_pprof(reading.before_reading(data), source, max_series))
                dropped.clear()
            except Refused as error:
                if error.status in (413, 503):
                    raise
                pushed.refused.append(error.message)
    return pushed
