"""Echo, compiled by numba: python examples/numba_echo.py [/run/corelane.sock]"""

import sys

from corelane import libos
from corelane.libos.numba.calls import from_server


@libos.udp(port=9000)
def echo(request, reply):  # type: ignore[no-untyped-def]
    if from_server():  # two echo services would answer each other for ever
        return 0
    n = len(request)
    reply[:n] = request
    return n


if __name__ == "__main__":
    socket = sys.argv[1] if len(sys.argv) > 1 else "/run/corelane.sock"
    libos.Runtime(socket, name="numba-echo", kthreads=2).serve(echo)
