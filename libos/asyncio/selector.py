"""The loop's select: turns of the kthread while it is busy, and one epoll_wait with its descriptor when it is not."""

from __future__ import annotations

import selectors

from .world import World


class Selector(selectors.EpollSelector):
    """asyncio's selector, which turns the kthread as well."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self._selector.register(world.fileno, 1)  # type: ignore[attr-defined]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        while not self._world.runtime.stopped:
            again = self._world.runtime.turn()
            if not again or timeout == 0:
                break
            if ready := super().select(0):
                return ready
        return super().select(timeout)
