"""Which hosts sample at a time, where it is to be a share of them: every host finds out alone, and they take turns.

Time is cut into turns of `interval_s` since 1970, so all hosts change at the same moments. A host samples in a turn
when a hash of its ID and the turn's number falls into the lower `share` of all hashes: about that share of the hosts at
any time, every host for that share of the time, and the same again whenever it is asked.
"""

import xxhash


def samples_at(unix_s: float, host_id: str, share: float, interval_s: float) -> bool:
    """Whether this host samples at that time."""
    turn = int(unix_s // interval_s)
    return xxhash.xxh3_64_intdigest(f"{host_id}/{turn}".encode()) < share * 2**64
