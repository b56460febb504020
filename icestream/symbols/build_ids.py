"""Build IDs that say also which code a file has: "<build ID>+<hash of the code>", schemas/icestream/v1/common.proto."""

import re

_WITH_CODE = re.compile(r"(.+)\+([0-9a-f]{16})")


def with_code(build_id: str, code: str) -> str:
    """`code`: 16 hex digits."""
    return f"{build_id}+{code}"


def without_code(build_id: str) -> tuple[str, str]:
    """Returns what `with_code` was given; the code is "" if the build ID does not say it."""
    match = _WITH_CODE.fullmatch(build_id)
    return (match[1], match[2]) if match else (build_id, "")
