"""Whose messages are handled when, so that who asks on and on delays himself.

A turn handles one message of a connection, registrations before queries, and those of one user for _TURN_S. A user who
is not trusted has _SHARE of a CPU in the long run, for all that the iokernel does for him: it takes that time from a
core of the applications where there is no other. Whoever has had more is held back until he has paid. Those who may
not attach have one share all together: one person may have many user ids (user_namespaces(7)).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection

from ...runtime.peers import trusted
from .connections import Connection
from .messages import is_query
from .multiplexer import Multiplexer

_TURN_S = 0.005  # that a user's messages may take in a turn, the last one's end excepted
_SHARE = 0.05  # of a CPU that a user has in the long run who is not trusted,
_BURST_S = 0.02  # and how much of it at once
_WAIT_MOST_S = 0.5  # for one large storage area, say

STRANGERS = -1
"""Stands for all users who may not attach."""


class Turns:
    """Owned by the control thread; others only `charge_elsewhere`."""

    def __init__(self, multiplexer: Multiplexer) -> None:
        self._multiplexer = multiplexer
        self._paid: dict[int, float] = {}  # when a user will have paid for what was done for him, with his share
        self._round_begun = 0.0
        self._round_charged_s, self._round_users = 0.0, Counter[int]()
        self.due = float("inf")
        """When somebody has paid who is held back, on the monotonic clock; inf: nobody is."""

    def charge(self, uid: int, begun: float) -> None:
        """What was done since the thread had used so much CPU time was done for a user."""
        self.charge_all(Counter({uid: 1}), begun)

    def charge_all(self, users: Counter[int], begun: float) -> None:
        """The same, of so much for each of several users."""
        used_s = time.thread_time() - begun
        self._share_out(users, used_s)
        self._round_users += users
        self._round_charged_s += used_s

    def charge_elsewhere(self, uid: int, begun: float) -> None:
        """The same, by any other thread of what it did itself."""
        self._charge(uid, time.thread_time() - begun)

    def _share_out(self, users: Counter[int], used_s: float) -> None:
        n = users.total()
        for uid, part in users.items():
            self._charge(uid, used_s * part / n)

    def _charge(self, uid: int, used_s: float) -> None:
        if not trusted(uid):
            now = time.monotonic()
            paid = max(self._paid.get(uid, now), now) + used_s / _SHARE
            self._paid[uid] = min(paid, now + _WAIT_MOST_S)

    def must_wait(self, uid: int) -> bool:
        """Whether a user has had more than his share of our time. What he sends stays where it is for a while."""
        return self._paid.get(uid, 0.0) > time.monotonic() + _BURST_S / _SHARE

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

    def end(self) -> None:
        """A round ends, or the first one begins: those for whom it was made are charged with the rest of it, too. Hold
        back who has had more than his share, and no longer who has paid."""
        used_s = time.thread_time() - self._round_begun
        self._share_out(self._round_users, used_s - self._round_charged_s)
        self._round_begun += used_s
        self._round_charged_s, self._round_users = 0.0, Counter()
        now, self.due = time.monotonic(), float("inf")
        for uid, paid in list(self._paid.items()):
            if (due := paid - _BURST_S / _SHARE) > now:
                self._multiplexer.hold(uid)
                self.due = min(self.due, due)
                continue
            self._multiplexer.release(uid)
            if paid <= now:
                del self._paid[uid]
