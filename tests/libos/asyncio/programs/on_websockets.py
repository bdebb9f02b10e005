"""websockets: python on_websockets.py ADDRESS PORT."""

import asyncio
import signal
import sys
from contextlib import suppress

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed


async def talk(socket):
    with suppress(ConnectionClosed):  # by a peer that does not say so
        async for message in socket:
            await socket.send(message.upper())


async def main():
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, end.set)
    async with serve(talk, sys.argv[1], int(sys.argv[2])):
        await end.wait()


asyncio.run(main())
