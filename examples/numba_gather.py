"""A handler that does several things at once, in a scope: python examples/numba_gather.py [socket]

Each byte of a request is for a part, milliseconds that it takes. The parts run side by side, and the reply has a byte
for each: 1, or 0 for those that a second was not enough for.
"""

import sys

import numba
import numpy as np

from corelane import libos
from corelane.libos.numba.calls import counter_add, from_server, scope_close, scope_open, scope_spawn, sleep_ns

late = libos.ShardedCounter()
state = np.array([late.address], np.uint64)


@numba.njit
def part(request, reply, i):  # type: ignore[no-untyped-def]
    if sleep_ns(np.uint64(request[i]) * np.uint64(1_000_000)) == 0:  # -ECANCELED: the second is over
        reply[i] = 1


@libos.udp(port=9000, state=state)
def gather(request, reply, state):  # type: ignore[no-untyped-def]
    if from_server():  # two of us would answer each other for ever
        return 0
    n = min(len(request), 32)
    scope = scope_open(1_000_000_000)
    for i in range(n):
        reply[i] = 0
        scope_spawn(scope, part, request, reply, i)
    if scope_close(scope):  # waits for all of them, whatever happens
        counter_add(state[0], 1)
    return n


if __name__ == "__main__":
    socket = sys.argv[1] if len(sys.argv) > 1 else "/run/corelane.sock"
    libos.Runtime(socket, name="numba-gather", kthreads=2).serve(gather)
