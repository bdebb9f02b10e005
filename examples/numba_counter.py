"""A counter that all kthreads share, and a handler that blocks: python examples/numba_counter.py [socket]

A request is one byte, milliseconds to sleep; the reply is the number of requests so far, 8 bytes, little-endian.
Sleeping handlers hold up nobody: each request has a user-level thread.
"""

import sys

import numpy as np

from corelane import libos
from corelane.libos.numba.atomics import atomic_add
from corelane.libos.numba.calls import from_server, put_le64, sleep_ns

count = np.zeros(1, np.uint64)


@libos.udp(port=9000, state=count)
def counter(request, reply, state):  # type: ignore[no-untyped-def]
    if from_server():  # two of us would answer each other for ever
        return 0
    before = atomic_add(state, 0, 1)
    if len(request) == 1:
        sleep_ns(np.uint64(request[0]) * np.uint64(1_000_000))
    put_le64(reply, 0, before + np.uint64(1))
    return 8


if __name__ == "__main__":
    socket = sys.argv[1] if len(sys.argv) > 1 else "/run/corelane.sock"
    libos.Runtime(socket, name="numba-counter", kthreads=2).serve(counter)
