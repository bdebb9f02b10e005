"""The loop's selector: which descriptors wake it. The wait is C: turns of the kthread while it is busy, and one
epoll_wait with its descriptor when it is not (native/poller.c)."""

from __future__ import annotations

import select
import selectors

from .._asyncio import Poller
from .sockets import TcpSocket
from .world import World


class Selector(selectors.EpollSelector):
    """asyncio's selector, whose `select` nobody calls. Public attributes: poller."""

    _selector: select.epoll

    def __init__(self, world: World) -> None:
        super().__init__()
        self.poller = Poller(world.runtime.pointer, TcpSocket)
        self._selector.register(world.fileno, select.EPOLLIN)
        self._selector.register(self.poller.timer_fd, select.EPOLLIN | select.EPOLLET)

    def keys_of(self, events: list[tuple[int, int]]) -> list[tuple[selectors.SelectorKey, int]]:
        """What `select` would return: keys, and what each is ready for."""
        ready = []
        for fd, which in events:
            key = self._fd_to_key.get(fd)  # type: ignore[attr-defined]
            if key is not None:
                mask = selectors.EVENT_WRITE if which & ~select.EPOLLIN else 0
                mask |= selectors.EVENT_READ if which & ~select.EPOLLOUT else 0
                ready.append((key, mask & key.events))
        return ready

    def close(self) -> None:
        """The runtime's connections end, too."""
        self.poller.close()
        super().close()
