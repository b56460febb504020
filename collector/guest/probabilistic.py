"""Decides which share of the hosts samples at a time. Every host decides for itself, and the hosts take turns.

Time since 1970 is cut into turns of `interval_s`, so all hosts change at the same moments. A host samples in a turn if
the hash of its ID and the turn's number is in the lower `share` of all hashes. So about that share of the hosts samples
at any time, and every host samples for that share of the time. The result is the same wherever it is computed.
"""

import xxhash


def samples_at(unix_s: float, host_id: str, share: float, interval_s: float) -> bool:
    """Whether this host samples at that time."""
    turn = int(unix_s // interval_s)
    return xxhash.xxh3_64_intdigest(f"{host_id}/{turn}".encode()) < share * 2**64
