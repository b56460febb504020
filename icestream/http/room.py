"""Bounds how many of our peers make us wait, so that a peer that does it on purpose does not shut out the others."""

from collections import Counter
from collections.abc import Callable


class Room:
    """Those that wait for their peers, in one event loop: at most `most`.

    Beyond that, one has to leave: of the peer that has most, the one that has waited longest. Honest peers do not make
    us wait for long, also where they have the same address as others.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[object, tuple[str, Callable[[], object]]] = {}
        self._of_peer = Counter[str]()

    def enter(self, who: object, peer: str, leave: Callable[[], object]) -> None:
        """Calls `leave`, now or later, if it has to leave. Does nothing if it is inside."""
        if who in self._waiting:
            return
        self._waiting[who] = peer, leave
        self._of_peer[peer] += 1
        if len(self._waiting) > self._most:
            most = max(self._of_peer, key=self._of_peer.__getitem__)
            loser, leave = next((one, leave) for one, (peer, leave) in self._waiting.items() if peer == most)
            self.exit(loser)
            leave()

    def exit(self, who: object) -> None:
        """Does nothing if it is not inside."""
        if who not in self._waiting:
            return
        peer, _ = self._waiting.pop(who)
        self._of_peer[peer] -= 1
        if not self._of_peer[peer]:
            del self._of_peer[peer]
