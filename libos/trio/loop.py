"""The runtime in trio's loop.

trio asks its clock how long it may sleep when no task can run: the clock turns the kthread first, and as long as it is
busy the answer is 0. Before trio looks at descriptors while tasks can run, the instrument makes one turn. So all that
the tasks of a round have written leaves in one pass, and who is woken runs in the same round. A task waits for the
kthread's descriptor, which wakes trio when both have been asleep.
"""

from __future__ import annotations

import signal
import time

import trio

from ..asyncio.world import World
from ..handlers.interrupts import pending
from .ours import Ours
from .sockets import Factory

_TURNS = 8  # without work, between two looks of trio's at other descriptors

CURRENT: trio.lowlevel.RunVar[Ours | None] = trio.lowlevel.RunVar("corelane", None)


class Run(trio.abc.Clock, trio.abc.Instrument):
    """The clock and the instrument of one run. Public attributes: ours."""

    def __init__(self, world: World) -> None:
        self.ours = Ours(world)
        self._poller = self.ours.poller
        self._turned = self._closed = False

    # As a clock. It is the system's.

    def start_clock(self) -> None:
        """Refuses a second run."""
        if self._closed:
            raise RuntimeError("options() are for one run: ask for new ones")

    def current_time(self) -> float:
        """Seconds."""
        return time.perf_counter()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """How long trio may sleep, after turns of the kthread. 0 if they have woken a task, or are to go on."""
        if deadline > time.perf_counter():
            self._turned = True
            if self._turn(_TURNS, True):
                return 0.0
        return deadline - time.perf_counter()

    # As an instrument.

    def before_run(self) -> None:
        """In trio's context, before there are tasks."""
        CURRENT.set(self.ours)
        trio.socket.set_custom_socket_factory(Factory(self.ours))
        trio.lowlevel.current_trio_token().run_sync_soon(self._begin)

    def before_io_wait(self, timeout: float) -> None:
        """Once a round."""
        if not self._turned:
            self._turn(1, False)
        self._turned = False

    def after_run(self) -> None:
        """No task is left."""
        self.close()

    def _begin(self) -> None:
        trio.lowlevel.spawn_system_task(self._watch)

    async def _watch(self) -> None:
        runtime = self.ours.world.runtime
        while not runtime.stopped:
            await trio.lowlevel.wait_readable(self.ours.world.fileno)

    def _turn(self, turns: int, alone: bool) -> bool:
        again = self._poller.spin(turns, alone)
        if pending:
            _raise_again(pending.pop())
        return again

    def close(self) -> None:
        """What was written is sent, connections that are open end, and the runtime if it was made here. May be called
        twice."""
        if not self._closed:
            self._closed = True
            self._poller.spin(1, False)
            self._poller.close()
            self.ours.places.closed()
            self.ours.world.close()


def _raise_again(error: BaseException) -> None:
    """A signal has come in a handler of the runtime's. trio takes Ctrl-C for its main task."""
    if not isinstance(error, KeyboardInterrupt):
        raise error
    signal.raise_signal(signal.SIGINT)
