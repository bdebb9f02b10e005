"""Serves UDP port 9000 with a handler that never comes back from its first request: `endless.py KIND [C_LIBRARY]`.

Prints "ready" once the handler is in it."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import threading
from typing import Any

import numpy as np
from cltest.packets import Host

from corelane import libos
from corelane.drivers.nic.memory import memory_link

SERVER = Host("02:00:00:00:00:01", "10.0.0.1")
CLIENT = Host("02:00:00:00:00:02", "10.0.0.2")
gate = np.zeros(1, np.uint32)


@libos.udp(port=9000, compiled=False)
def python(request: Any) -> None:
    while True:
        pass


@libos.udp(port=9000, compiled=False)
def sleeping(request: Any) -> int:
    threading.Event().wait()
    return 0


@libos.udp(port=9000, compiled=False)
def locked(request: Any) -> int:
    """It keeps the interpreter's lock: no other thread runs Python any more."""
    os.write(1, b"ready\n")
    return sum(iter(int, 1))


def compiled() -> Any:
    from corelane.libos.numba import atomics

    @libos.udp(port=9000, state=np.zeros(1, np.int64), cache=False)
    def loops(request: Any, reply: Any, state: Any) -> int:
        while atomics.load_atomic(state, 0) == 0:
            pass
        return 0

    return loops


def in_c() -> Any:
    return libos.c_handler(ctypes.CDLL(sys.argv[2]).endless_handler, port=9000, arg=gate)


if "HURRY" in os.environ:  # the process ends before a stop would say anything
    awaited = importlib.import_module("corelane.libos.awaited")
    setattr(awaited, "_LATE_S", 0.1)  # noqa: B010
    setattr(awaited, "STOP_TIMEOUT_S", 0.1)  # noqa: B010


nic, end = memory_link((1, 1), ipv4=(SERVER.ip, CLIENT.ip), ipv4_prefix=24, mac=(SERVER.mac, CLIENT.mac))
runtime = libos.Runtime(nic=nic, scheduler=libos.Scheduler(stop_s=0.1))


def ask() -> None:
    runtime.wait_until(lambda s: s.sched["polls"] > 0, 60)
    end.send(CLIENT.datagram(SERVER, b"x", 5555, 9000))
    runtime.wait_until(lambda s: s.net["handled"] > 0, 60)
    if sys.argv[1] != "locked":
        os.write(1, b"ready\n")


threading.Thread(target=ask, daemon=True).start()
handlers: dict[str, Any] = {"python": python, "sleeping": sleeping, "locked": locked}
runtime.serve(handlers.get(sys.argv[1]) or (compiled() if sys.argv[1] == "compiled" else in_c()))
