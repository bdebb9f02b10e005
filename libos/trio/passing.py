"""Calls of a socket that another one answers, which it has as `_is`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trio.socket import SocketType


def pass_on(cls: type[SocketType], *names: str) -> None:
    """Have methods of these names."""
    for name in names:
        setattr(cls, name, _passed_on(name))


def _passed_on(name: str) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._is, name)(*args, **kwargs)

    call.__name__ = name
    call.__doc__ = f"As of trio's own sockets: {name}."
    return call
