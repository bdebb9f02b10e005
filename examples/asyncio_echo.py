"""An asyncio server on the dataplane: python examples/asyncio_echo.py [socket]

Plain asyncio streams; only how they are run is corelane's. With the socket of an iokernel it is an application of it,
at an address of its own. Without, it serves this process alone: it asks itself once, and ends.
"""

import asyncio
import signal
import sys

from corelane.libos import asyncio as libos_asyncio

PORT = 7000


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def main(forever: bool) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, libos_asyncio.Loop)
    address = loop.runtime.address
    async with await asyncio.start_server(echo, address, PORT):
        print(f"serving {address}:{PORT}", flush=True)
        if forever:
            end = asyncio.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, end.set)
            await end.wait()
            return
        reader, writer = await asyncio.open_connection(address, PORT)
        writer.write(b"hello")
        writer.write_eof()
        print("answered", (await reader.read()).decode(), loop.endpoints())
        writer.close()
        await writer.wait_closed()


if __name__ == "__main__":
    socket = sys.argv[1] if len(sys.argv) > 1 else None
    options = {"socket": socket, "name": "asyncio-echo"} if socket else {}
    libos_asyncio.run(main(bool(socket)), **options)
