"""Reads the environment variables that a process was started with. Keeps only those that are needed."""

from collections.abc import Collection
from urllib.parse import unquote

from collector.labels.text import clean

_MAX_BYTES = 4 << 20
_CHUNK = 1 << 14
_MAX_ENTRY = 128 << 10  # one variable: Linux's MAX_ARG_STRLEN
_SERVICE, _RESOURCE = b"OTEL_SERVICE_NAME", b"OTEL_RESOURCE_ATTRIBUTES"


def read_environment(folder: str, names: Collection[bytes]) -> dict[str, str]:
    """Returns the variables `names`, and OpenTelemetry's that name the service; {} if the process is gone.
    `folder`: see folder_of.

    If two variables have the same name, the first one counts, as for getenv(3).
    """
    wanted = {*names, _SERVICE, _RESOURCE}
    values: dict[bytes, bytes] = {}
    try:
        with open(f"{folder}/environ", "rb", buffering=0) as file:
            rest = b""
            for _ in range(_MAX_BYTES // _CHUNK):
                chunk = file.read(_CHUNK)
                *entries, rest = (rest + chunk).split(b"\0")
                for entry in entries if chunk else [*entries, rest]:
                    name, equals, value = entry.partition(b"=")
                    if equals and name in wanted:
                        values.setdefault(name, value[:_MAX_ENTRY])
                if not chunk:
                    break
                rest = rest[:_MAX_ENTRY]
    except OSError:
        pass
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in values.items()}


def resource_attributes(environment: dict[str, str]) -> dict[str, str]:
    """Returns the attributes of the OpenTelemetry resource in the variables. OTEL_SERVICE_NAME wins, as specified."""
    attributes = {}
    for pair in environment.get(_RESOURCE.decode(), "").split(",")[:256]:
        key, equals, value = pair.partition("=")
        if equals:
            attributes[key.strip()] = clean(unquote(value[:1000]))
    if service := clean(environment.get(_SERVICE.decode(), "")):
        attributes["service.name"] = service
    return {key: value for key, value in attributes.items() if value}
