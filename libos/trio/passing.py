"""Sockets of which another one answers what they do not know themselves."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Self

from trio.socket import SocketType


class Passing(SocketType):
    """Such a socket; `_is` is the other one."""

    _is: SocketType

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def family(self) -> socket.AddressFamily:
        """AF_INET."""
        return self._is.family

    @property
    def type(self) -> socket.SocketKind:
        """SOCK_STREAM or SOCK_DGRAM."""
        return self._is.type

    @property
    def proto(self) -> int:
        """As it was made."""
        return self._is.proto

    @property
    def did_shutdown_SHUT_WR(self) -> bool:
        """Whether a FIN follows what was sent."""
        return self._is.did_shutdown_SHUT_WR


def pass_on(cls: type[Passing], *names: str) -> None:
    """Have methods of these names."""
    for name in names:
        setattr(cls, name, _passed_on(name))


def _passed_on(name: str) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._is, name)(*args, **kwargs)

    call.__name__ = name
    call.__doc__ = f"As of trio's own sockets: {name}."
    return call
