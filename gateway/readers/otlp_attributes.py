"""Attributes of OpenTelemetry as labels, by its semantic conventions (opentelemetry.io/docs/specs/semconv)."""

from collections import Counter
from collections.abc import Mapping, Sequence

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.profiles.v1development.profiles_pb2 import KeyValueAndUnit

from gateway.errors import bad_profile
from gateway.labels import to_labels
from icestream.labels.otlp_labels import LABELS
from icestream.messages.checks import Labels

COLUMNS = ("process.pid", "thread.id", "host.id")
"""Attributes that are columns of samples, or the host ID of their batch."""
_PER_SAMPLE = ("cpu.logical_number", "process.parent_pid", "process.creation.time", "process.command_args")
"""Attributes that would make a series for nearly every sample."""
NO_LABELS = frozenset((*COLUMNS, *_PER_SAMPLE))
"""Attributes that are no labels."""
_UNKNOWN_SERVICE = "unknown_service"
_NO_TEXT = ("array_value", "kvlist_value", "bytes_value")

MAX_ATTRIBUTES = 1000
"""The most attributes of a resource, a scope, a profile or a sample."""

Attributes = Mapping[str, str]


def text_of(value: AnyValue, strings: Sequence[str]) -> str:
    """Returns a value as text; "" for lists, maps and bytes. Raises Refused."""
    kind = value.WhichOneof("value")
    if kind == "string_value_strindex":
        return string_at(strings, value.string_value_strindex)
    if kind == "bool_value":
        return str(value.bool_value).lower()
    return str(getattr(value, kind)) if kind in ("string_value", "int_value", "double_value") else ""


def attributes(
    pairs: Sequence[KeyValue], strings: Sequence[str], dropped: Counter[str] | None = None
) -> dict[str, str]:
    """Returns attributes of a resource or a scope, whose strings may be in the dictionary. Counts in `dropped` those
    that are no text. Raises Refused."""
    _check_count(len(pairs))
    found = {}
    for pair in pairs:
        if name := pair.key or string_at(strings, pair.key_strindex):
            found[name] = text_of(pair.value, strings)
            _count(name, pair.value, dropped)
    return found


def attributes_at(
    indices: Sequence[int], table: Sequence[KeyValueAndUnit], strings: Sequence[str],
    dropped: Counter[str] | None = None,
) -> dict[str, str]:  # fmt: skip
    """Returns the attributes of the dictionary that indices refer to. Counts in `dropped` those that are no text.
    Raises Refused."""
    _check_count(len(indices))
    found = {}
    for index in indices:
        if not 0 <= index < len(table):
            raise bad_profile(f"attribute_indices: expected indices below {len(table)}, got {index}")
        if index:
            pair = table[index]
            name = string_at(strings, pair.key_strindex)
            found[name] = text_of(pair.value, strings)
            _count(name, pair.value, dropped)
    return found


def _check_count(count: int) -> None:
    if count > MAX_ATTRIBUTES:
        raise bad_profile(f"attributes: expected at most {MAX_ATTRIBUTES}, got {count}")


def _count(name: str, value: AnyValue, dropped: Counter[str] | None) -> None:
    """Counts what would be a label if it were a text."""
    if dropped is not None and value.WhichOneof("value") in _NO_TEXT and name not in _PER_SAMPLE:
        dropped["attributes"] += 1


def labels_of(given: Attributes, dropped: Counter[str] | None = None) -> Labels:
    """Returns the labels of attributes. Where none names the service, the service is the executable, or else the
    thread. Its name is taken without the number that kernel threads have behind a slash (kworker/3:1), as there are
    hundreds of them. Counts in `dropped` what is beyond the limits."""
    pairs = {LABELS.get(name, name): value for name, value in given.items() if name not in NO_LABELS and value}
    if pairs.get("service", _UNKNOWN_SERVICE).partition(":")[0] == _UNKNOWN_SERVICE:
        thread = pairs.get("thread_name", "")
        pairs["service"] = pairs.get("executable") or thread.partition("/")[0] or thread or _UNKNOWN_SERVICE
    return to_labels(pairs.items(), dropped)


def string_at(strings: Sequence[str], index: int) -> str:
    """Raises Refused."""
    if not 0 <= index < len(strings):
        raise bad_profile(f"string_table: expected indices below {len(strings)}, got {index}")
    return strings[index]
