"""A profile as its sender has it, whatever its format: what readers make, and what `gateway.encode` encodes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from icestream.messages.raw_encoder import Window


@dataclass(frozen=True)
class Values:
    """The values of n samples in one profile type."""

    profile_type: str
    period: int  # of one observation, in the period unit
    value: np.ndarray  # int64 (n,), in the sample unit; rows with 0 were not seen in this profile type
    count: np.ndarray | None = None  # int64 (n,), observations; None: one for each row


@dataclass(frozen=True)
class SentProfile:
    """One profile: n samples of a span of time, with values of several profile types."""

    window: Window  # without values and counts
    values: Sequence[Values]
    host_id: str
    identity: bytes
    """Tells it apart from other profiles of the same labels and time, so that it counts once if it comes again. Empty:
    it does not say when it was taken, so two equal ones count twice."""
    dropped: Counter[str] = field(default_factory=Counter)
    """What of the profile was not taken: what, and how often."""


MAX_PROFILES = 10_000
"""The most profiles of a request: each takes up to a millisecond, and 5 kB, even if it is empty."""


@dataclass(frozen=True)
class SentProfiles:
    """What a request has: the profiles that can be read, and why others cannot."""

    profiles: list[SentProfile] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
