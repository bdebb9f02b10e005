"""The loop's select: turns of the kthread while it is busy, and one epoll_wait with its descriptor when it is not."""

from __future__ import annotations

import math
import select
import selectors

from .._asyncio import Poller
from ..handlers.interrupts import pending
from .sockets import TcpSocket
from .world import World


class Selector(selectors.EpollSelector):
    """asyncio's selector, whose wait is the poller's (native/poller.c). Public attributes: poller."""

    _selector: select.epoll

    def __init__(self, world: World) -> None:
        super().__init__()
        self.poller = Poller(world.runtime.pointer, TcpSocket)
        self._selector.register(world.fileno, select.EPOLLIN)
        self._selector.register(self.poller.timer_fd, select.EPOLLIN | select.EPOLLET)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready, of descriptors; what is ready of connections `poller.deliver` tells."""
        ns = -1 if timeout is None else max(0, math.ceil(timeout * 1e9))
        ready = []
        for fd, events in self.poller.wait(self._selector.fileno(), ns):
            key = self._fd_to_key.get(fd)  # type: ignore[attr-defined]
            if key is not None:
                mask = selectors.EVENT_WRITE if events & ~select.EPOLLIN else 0
                mask |= selectors.EVENT_READ if events & ~select.EPOLLOUT else 0
                ready.append((key, mask & key.events))
        if pending:
            raise pending.pop()
        return ready

    def close(self) -> None:
        """The runtime's connections end, too."""
        self.poller.close()
        super().close()
