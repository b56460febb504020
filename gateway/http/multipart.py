"""Splits bodies of multipart/form-data (RFC 7578), which are in memory already."""

import re

from gateway.errors import Refused

_BOUNDARY = re.compile(r'boundary="?([^";,]{1,70})"?', re.IGNORECASE)
_NAME = re.compile(rb'name="([^"]*)"', re.IGNORECASE)
_MAX_PARTS = 16


def split_parts(content_type: str, body: bytes) -> dict[str, bytes]:
    """Returns the content of each part by its name. Raises Refused."""
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        raise Refused(400, "bad_body", "expected a boundary in the Content-Type multipart/form-data")
    delimiter = b"\r\n--" + boundary[1].encode()
    pieces = (b"\r\n" + body).split(delimiter, _MAX_PARTS + 2)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise Refused(400, "bad_body", f"expected multipart/form-data with at most {_MAX_PARTS} parts, complete")
    parts = {}
    for piece in pieces[1:-1]:
        head, _, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        name = _NAME.search(head)
        if name is not None:
            parts[name[1].decode(errors="replace")] = content
    return parts
