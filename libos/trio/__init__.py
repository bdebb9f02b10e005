"""trio, whose TCP sockets are a runtime's. See README.md beside this; for users docs/trio.md.

    from corelane.libos import trio as libos_trio

    libos_trio.run(main, socket="/run/corelane.sock")

    anyio.run(main, backend="trio", backend_options=libos_trio.options(nic=nic))

`run` and `options` take the same options, those of `options`.
"""

from __future__ import annotations

import os
import socket as sockets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

import trio
from trio.socket import from_stdlib_socket as _of_trio  # programs may put ours in its place

from ...drivers.nic.nic import Nic
from ..asyncio.world import Endpoints, World
from ..runtime import Runtime
from .loop import CURRENT, Run
from .ours import Ours
from .sockets import Socket

__all__ = ["Endpoints", "current_runtime", "endpoints", "from_stdlib_socket", "options", "run"]

_T = TypeVar("_T")


def options(
    runtime: Runtime | None = None,
    *,
    socket: str | os.PathLike[str] | None = None,
    nic: Nic | None = None,
    loopback: bool | None = None,
    instruments: Sequence[trio.abc.Instrument] = (),
    **more: Any,
) -> dict[str, Any]:
    """What one trio.run is to be given, as clock and instruments, for its TCP sockets to be a runtime's.

    runtime: one with kthreads=1 and adopted=1, which stays the caller's. Or one is made, and closed when trio's run is
    over: with socket an application of an iokernel, with nic on that NIC, with neither on a wire to nobody, which
    serves this process alone. more: options for it, as name, address, poll (Runtime). loopback: 127.0.0.0/8 inside
    this process is the runtime's; None: if it serves this process alone. instruments: of yours, besides. docs/trio.md
    says which sockets are whose.

    Raises CorelaneError.
    """
    extended = Run(World(runtime, socket=socket, nic=nic, loopback=loopback, **more))
    return {"clock": extended, "instruments": [extended, *instruments]}


def run(
    async_fn: Callable[..., Awaitable[_T]],
    *args: Any,
    restrict_keyboard_interrupt_to_checkpoints: bool = False,
    **more: Any,
) -> _T:
    """As trio.run, with these options. There is no clock but the runtime's."""
    extended = options(**more)
    try:
        return trio.run(
            async_fn,
            *args,
            restrict_keyboard_interrupt_to_checkpoints=restrict_keyboard_interrupt_to_checkpoints,
            **extended,
        )
    finally:
        cast(Run, extended["clock"]).close()  # trio may have refused to run


def from_stdlib_socket(sock: sockets.socket) -> trio.socket.SocketType:
    """As trio.socket.from_stdlib_socket; a TCP socket that is bound, or listens, where the runtime does is the
    runtime's."""
    ours = CURRENT.get()
    return _of_trio(sock) if ours is None else Socket.of(ours, sock)


def current_runtime() -> Runtime:
    """The runtime whose kthread this thread is. Raises RuntimeError outside of `run`."""
    return _current().world.runtime


def endpoints() -> Endpoints:
    """How many TCP endpoints of this run were the runtime's, how many Linux', and how many were refused. Raises
    RuntimeError outside of `run`."""
    return _current().endpoints


def _current() -> Ours:
    ours = CURRENT.get()
    if ours is None:
        raise RuntimeError("this run of trio has no runtime: start it by corelane.libos.trio.run, or with its options")
    return ours
