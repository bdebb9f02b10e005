"""A service to compile ahead of time: corelane compile examples/numba_service.py, then corelane run ./numba_service.so

Answers a request by how many its sender's port has sent, as eight bytes; forgets all of it each minute."""

import numpy as np

from corelane import libos
from corelane.libos.numba.atomics import atomic_add
from corelane.libos.numba.calls import from_server, peer_port, put_be64

asked = np.zeros(65536, np.uint64)  # of each port


@libos.udp(port=9000, state=asked)
def count(request, reply, asked):  # type: ignore[no-untyped-def]
    if from_server():  # two such services would answer each other for ever
        return 0
    put_be64(reply, 0, atomic_add(asked, peer_port(), 1) + 1)
    return 8


@libos.every(ms=60_000, state=asked)
def forget(asked):  # type: ignore[no-untyped-def]
    asked[:] = 0
