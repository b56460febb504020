"""OTLP/JSON: the JSON of protobuf, but IDs are in hex (opentelemetry.io/docs/specs/otlp, "JSON Protobuf Encoding")."""

import base64
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from gateway.errors import Refused, bad_profile, bad_spans, unsupported
from gateway.readers.valid_texts import load_object

_IDS = frozenset(
    {"traceId", "spanId", "parentSpanId", "profileId", "trace_id", "span_id", "parent_span_id", "profile_id"}
)
_NO_ID = b"?"
"""Stands for an ID that is not in hex. No ID is one byte long, so only its span is refused."""
_OLD = ("sample", "locationIndices", "stringTable")
"""Fields that profiles had before opentelemetry-proto 1.9."""


def parse_profiles(body: bytes) -> ProfilesData:
    """Raises Refused."""
    try:
        data = load_object(body)
        _check_version(data)
        return json_format.ParseDict(_with_base64(data), ProfilesData(), ignore_unknown_fields=True)
    except (ValueError, RecursionError, TypeError, AttributeError, json_format.ParseError) as error:
        raise bad_profile(f"no OTLP profiles in JSON: {error}") from None


def parse_spans(body: bytes) -> TracesData:
    """Raises Refused."""
    try:
        return json_format.ParseDict(_with_base64(load_object(body)), TracesData(), ignore_unknown_fields=True)
    except (ValueError, RecursionError, TypeError, AttributeError, json_format.ParseError) as error:
        raise bad_spans(f"no OTLP traces in JSON: {error}") from None


def _with_base64(value: Any) -> Any:
    """Returns the JSON with IDs as protobuf's JSON has bytes."""
    if isinstance(value, dict):
        return {
            name: _id(one) if name in _IDS and isinstance(one, str) else _with_base64(one)
            for name, one in value.items()
        }
    return [_with_base64(one) for one in value] if isinstance(value, list) else value


def _id(text: str) -> str:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = _NO_ID
    return base64.b64encode(found).decode()


def _check_version(data: Any) -> None:
    for resource in data.get("resourceProfiles", data.get("resource_profiles", [])):
        for scope in resource.get("scopeProfiles", resource.get("scope_profiles", [])):
            for profile in scope.get("profiles", []):
                if any(name in profile for name in _OLD):
                    raise _too_old()


def _too_old() -> Refused:
    return unsupported("the profiles are of opentelemetry-proto 1.8 or older; expected 1.9 or newer in JSON")
