"""What this process says about itself to profilers: OpenTelemetry process context (OTEP 4719).

A mapping named OTEL_CTX: a header of 32 bytes, and a message ProcessContext{resource = 1, attributes = 2} that it
points at. Its attributes tell readers to look for thread contexts (OTEP 4947).
"""

import ctypes
import mmap
import os
import struct
import time

_HEADER = struct.Struct("<8sIIQQ")  # signature, version, size of the payload, monotonic time of publication, payload
_VERSION = 2
_SCHEMA = "tlsdesc_v1_dev"


def publish(service: str, thread_context: bool) -> mmap.mmap | None:
    """Publishes the context until the returned mapping is closed. Returns None if the system has no named memory.

    A child of a fork does not have this mapping.
    """
    payload = _message(1, _attribute("service.name", service) + _attribute("telemetry.sdk.language", "python"))
    if thread_context:
        payload += _message(2, _key_value("threadlocal.schema_version", _message(1, _SCHEMA.encode())))
        payload += _message(2, _key_value("threadlocal.attribute_key_map", _message(5, b"")))
    try:
        file = os.memfd_create("OTEL_CTX", os.MFD_CLOEXEC)
        try:
            os.ftruncate(file, _HEADER.size + len(payload))
            mapping = mmap.mmap(file, 0)
        finally:
            os.close(file)
        mapping.madvise(mmap.MADV_DONTFORK)
    except (AttributeError, OSError):
        return None
    address = _address(mapping)
    mapping[_HEADER.size :] = payload
    header = _HEADER.pack(bytes(8), _VERSION, len(payload), 0, address + _HEADER.size)
    mapping[: _HEADER.size] = header
    mapping[:8] = b"OTEL_CTX"
    mapping[16:24] = struct.pack("<Q", time.monotonic_ns())  # not zero: complete
    return mapping


def abandon(mapping: mmap.mmap) -> None:
    """Runs in the child of a fork, which does not have the memory: never unmaps what may be there now."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(mapping))


def _address(mapping: mmap.mmap) -> int:
    view = ctypes.c_char.from_buffer(mapping)
    return ctypes.addressof(view)


def _attribute(key: str, text: str) -> bytes:
    """Encodes an entry of Resource.attributes."""
    return _message(1, _key_value(key, _message(1, text.encode("utf-8", "replace"))))


def _key_value(key: str, value: bytes) -> bytes:
    return _message(1, key.encode()) + _message(2, value)


def _message(field: int, content: bytes) -> bytes:
    """Encodes a length-delimited field of a protobuf message."""
    size, length = len(content), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes((field << 3 | 2,)) + bytes(length) + content
