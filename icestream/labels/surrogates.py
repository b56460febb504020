"""Halves of pairs of surrogates, which JSON may have alone. UTF-8 has no bytes for them, and protobuf's package fails
with a SystemError at them."""

import re
from typing import Any

_SURROGATE = re.compile("[\ud800-\udfff]")


def without_surrogates(value: Any) -> Any:
    """Returns what JSON was read as, with U+FFFD instead of each. Raises RecursionError."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {without_surrogates(name): without_surrogates(one) for name, one in value.items()}
    return [without_surrogates(one) for one in value] if isinstance(value, list) else value
