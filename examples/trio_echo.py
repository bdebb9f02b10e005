"""A trio server on the dataplane: python examples/trio_echo.py [socket]

Plain trio streams; only how they are run is corelane's. With the socket of an iokernel it is an application of it, at
an address of its own. Without, it serves this process alone: it asks itself once, and ends.
"""

import functools
import signal
import sys

import trio

from corelane.libos import trio as libos_trio

PORT = 7000


async def echo(stream: trio.SocketStream) -> None:
    async for data in stream:
        await stream.send_all(data)


async def main(forever: bool) -> None:
    address = libos_trio.current_runtime().address
    async with trio.open_nursery() as nursery:
        await nursery.start(functools.partial(trio.serve_tcp, echo, PORT, host=address))
        print(f"serving {address}:{PORT}", flush=True)
        if forever:
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async for _ in signals:
                    break
        else:
            async with await trio.open_tcp_stream(address, PORT) as stream:
                await stream.send_all(b"hello")
                await stream.send_eof()
                print("answered", b"".join([data async for data in stream]).decode(), libos_trio.endpoints())
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    socket = sys.argv[1] if len(sys.argv) > 1 else None
    options = {"socket": socket, "name": "trio-echo"} if socket else {}
    libos_trio.run(main, bool(socket), **options)
