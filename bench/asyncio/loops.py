"""The event loops that are compared, by name. Each is a factory for `asyncio.Runner`; none changes what runs on it."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from ...drivers.nic.nic import Nic

STOCK, UVLOOP, OURS = "asyncio", "uvloop", "ours"
BASELINES = (STOCK, UVLOOP)
ALL = (*BASELINES, OURS)
Factory = Callable[[], asyncio.AbstractEventLoop]


def missing(name: str) -> str:
    """Why a loop cannot be had here, in one line; "" if it can."""
    if name == OURS and importlib.util.find_spec("...libos.asyncio", __package__) is None:
        return "this version has no corelane.libos.asyncio"
    if name == UVLOOP and importlib.util.find_spec("uvloop") is None:
        return "uvloop is not installed: pip install 'corelane[bench]'"
    return ""


def baseline(name: str) -> Factory:
    """The factory of a loop on Linux' sockets."""
    factory: Factory = asyncio.SelectorEventLoop if name == STOCK else importlib.import_module("uvloop").new_event_loop
    return factory


def ours(nic: Nic, address: str) -> Factory:
    """The factory of our loop, embedded on a NIC; address: with its prefix. All else is as a user gets it."""
    from ...libos import asyncio as libos_asyncio

    factory: Factory = libos_asyncio.loop_factory(nic=nic, address=address)
    return factory


def own_endpoints(loop: asyncio.AbstractEventLoop) -> int:
    """How many TCP endpoints of a loop are on the dataplane; none of a loop that is not ours."""
    counted: Any = getattr(loop, "endpoints", None)
    return int(counted().ours) if counted else 0
