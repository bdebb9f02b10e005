"""Runs a program that knows nothing of corelane on trio: python launch.py stock|ours PROGRAM [ARGUMENT...].

The program has an async function, serve. ours: trio's sockets are on a tap in this network namespace, of which Linux
has 10.99.8.1, and the run 10.99.8.2. At the end it says how many TCP endpoints were the runtime's, and how many Linux'.
"""

import runpy
import sys

import trio

from corelane.drivers.nic.tap.tap import Tap
from corelane.libos import trio as libos_trio

LINUX, OURS = "10.99.8.1", "10.99.8.2"


async def on_tap(serve):
    """Serve, and say how many endpoints there were."""
    await serve()
    counts = libos_trio.endpoints()
    print(f"endpoints {counts.ours} {counts.linux}", flush=True)


def main():
    side, program, *sys.argv[1:] = sys.argv[1:]
    serve = runpy.run_path(program)["serve"]
    if side == "ours":
        # For servers that hand trio sockets of Linux' which they have made themselves.
        trio.socket.from_stdlib_socket = libos_trio.from_stdlib_socket
        libos_trio.run(on_tap, serve, nic=Tap("cltrio", address=f"{LINUX}/24"), address=f"{OURS}/24")
    else:
        trio.run(serve)
        print("endpoints 0 0", flush=True)


if __name__ == "__main__":
    main()
