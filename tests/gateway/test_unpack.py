"""Gzip of senders: its members, and its limits."""

import gzip
import random

import pytest

from gateway.errors import Refused
from gateway.unpack import unpack

LIMIT = 10**6
NOISE = random.Random(1).randbytes(100_000)  # stays as large when it is packed


def test_all_members_are_unpacked() -> None:
    packed = [gzip.compress(part) for part in (NOISE, b"", NOISE[:20_000], b"end")]
    assert unpack(b"".join(packed), LIMIT) == NOISE + NOISE[:20_000] + b"end"
    assert unpack(b"".join(packed) + b"padding", LIMIT) == NOISE + NOISE[:20_000] + b"end"
    assert unpack(NOISE, LIMIT) == NOISE


def test_members_without_content_do_not_go_on_for_ever() -> None:
    with pytest.raises(Refused, match="members"):
        unpack(gzip.compress(b"") * 10_001, LIMIT)


@pytest.mark.parametrize("end", [-1, -9, 5000, 12])
def test_gzip_that_is_cut_off_is_refused(end: int) -> None:
    with pytest.raises(Refused, match="cut off"):
        unpack(gzip.compress(NOISE)[:end], LIMIT)


def test_the_limit_is_that_of_all_members_together() -> None:
    packed = gzip.compress(NOISE) * 2
    assert len(unpack(packed, 200_000)) == 200_000
    with pytest.raises(Refused, match="199999 bytes"):
        unpack(packed, 199_999)
