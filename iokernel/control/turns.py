"""Whose messages are handled when, so that who asks on and on delays himself.

A turn handles one message of a connection, registrations before queries, and those of one user for _TURN_S. A user who
is not trusted has _SHARE of the control thread's time in the long run, which it may take on a core of the applications.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection

from ...runtime.peers import trusted
from .connections import Connection
from .messages import is_query

_TURN_S = 0.005  # that a user's messages may take in a turn, the last one's end excepted
_SHARE = 0.25  # of the control thread's time that a user has in the long run who is not trusted,
_BURST_S = 0.02  # and how much of it at once
_WAIT_MOST_S = 0.5  # for one large storage area, say
_PAUSE_S = 0.002  # between two looks at what such users have to wait for


class Turns:
    """Owned by the control thread; others only `charge`."""

    def __init__(self) -> None:
        self._paid: dict[int, float] = {}  # when a user will have paid for what was done for him, with his share
        self._held_back = False  # something waits for that, in this round
        self._served = False  # and something else did not have to

    def charge(self, uid: int, begun: float) -> None:
        """What the calling thread has done since it had used so much CPU time was done for a user."""
        self._charge(uid, time.thread_time() - begun)

    def _charge(self, uid: int, used_s: float) -> None:
        if not trusted(uid):
            now = time.monotonic()
            paid = max(self._paid.get(uid, now), now) + used_s / _SHARE
            self._paid[uid] = min(paid, now + _WAIT_MOST_S)

    def charge_all(self, users: Counter[int], begun: float) -> bool:
        """The same, of so much for each of several users. Returns whether one of them need not wait."""
        used_s, n = time.thread_time() - begun, users.total()
        for uid, part in users.items():
            self._charge(uid, used_s * part / n)
        return not all(self.must_wait(uid) for uid in users)

    def must_wait(self, uid: int) -> bool:
        """Whether a user has had more than his share of our time. What he sends stays where it is for a while."""
        wait = self._paid.get(uid, 0.0) > time.monotonic() + _BURST_S / _SHARE
        self._held_back |= wait
        return wait

    def take(self, ready: Collection[Connection], handle: Callable[[Connection], None]) -> None:
        """Handle one message of each of these connections, of each user within a budget: registrations first, and
        first those of processes that ask for little. ready: may change meanwhile."""
        spent: Counter[int] = Counter()  # ns, by user
        asks = Counter(c.peer.pid for c in ready)
        for connection in sorted(ready, key=lambda c: (is_query(c.received), asks[c.peer.pid])):
            uid = connection.peer.uid
            if spent[uid] > _TURN_S * 1e9 or self.must_wait(uid):
                continue  # at a later turn, before those that had theirs
            begun, charged_from = time.monotonic_ns(), time.thread_time()
            handle(connection)
            ended = time.monotonic_ns()
            spent[uid] += ended - begun
            self.charge(uid, charged_from)
            connection.since = ended / 1e9

    def served(self) -> None:
        """Something was done in this round that nobody had to wait for."""
        self._served = True

    def end(self) -> None:
        """A round ends. If all that there is must wait, it is told to us again at once: do not spin beside it."""
        if self._held_back and not self._served:
            self._rest()
        self._held_back = self._served = False

    def _rest(self) -> None:
        time.sleep(_PAUSE_S)
