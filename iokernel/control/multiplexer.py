"""Waits for descriptors: those of the server itself, and those of users, each of whom can be held back.

Each user has an epoll of his own inside ours. So to hold one back is one system call, whatever he has open, and while
he is held back nothing that he does wakes us.
"""

from __future__ import annotations

import selectors
from collections.abc import Iterator
from typing import Any


class Multiplexer:
    """Owned by the control thread. What is registered belongs to the caller, who takes it out before it is closed."""

    def __init__(self) -> None:
        self._all = selectors.EpollSelector()
        self._users: dict[int, selectors.EpollSelector] = {}
        self._held: set[int] = set()

    def register(self, fileobj: Any, data: Any = None) -> None:
        """One that is not held back with any user: tell when it is readable."""
        self._all.register(fileobj, selectors.EVENT_READ, data)

    def unregister(self, fileobj: Any) -> None:
        """The opposite of `register`."""
        self._all.unregister(fileobj)

    def add(self, uid: int, fileobj: Any, events: int, data: Any) -> None:
        """One of a user's. Raises OSError if the system has no descriptor for his first one."""
        user = self._users.get(uid)
        if user is None:
            user = self._users[uid] = selectors.EpollSelector()
            if uid not in self._held:
                self._all.register(user, selectors.EVENT_READ, user)
        user.register(fileobj, events, data)

    def modify(self, uid: int, fileobj: Any, events: int, data: Any) -> None:
        """Tell of other events of it."""
        self._users[uid].modify(fileobj, events, data)

    def remove(self, uid: int, fileobj: Any) -> None:
        """The opposite of `add`."""
        user = self._users[uid]
        user.unregister(fileobj)
        if not user.get_map():
            del self._users[uid]
            if uid not in self._held:
                self._all.unregister(user)
            user.close()

    def hold(self, uid: int) -> None:
        """Tell nothing of a user's until `release`, also of what he opens meanwhile."""
        if uid not in self._held:
            self._held.add(uid)
            if uid in self._users:
                self._all.unregister(self._users[uid])

    def release(self, uid: int) -> None:
        """The opposite of `hold`. Not held back: nothing."""
        if uid in self._held:
            self._held.remove(uid)
            if uid in self._users:
                self._all.register(self._users[uid], selectors.EVENT_READ, self._users[uid])

    def select(self, timeout: float | None) -> Iterator[tuple[selectors.SelectorKey, int]]:
        """Keys (fd, data) and events of what is ready, after `timeout` seconds at most; None: however long it takes."""
        for key, events in self._all.select(timeout):
            if not isinstance(key.data, selectors.EpollSelector):
                yield key, events
            elif key.data in self._users.values():  # his last one was not removed meanwhile
                yield from key.data.select(0)

    def close(self) -> None:
        """Wait for nothing any more."""
        for user in self._users.values():
            user.close()
        self._all.close()
