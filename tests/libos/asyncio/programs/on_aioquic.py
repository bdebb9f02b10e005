"""aioquic: python on_aioquic.py serve ADDRESS PORT CERTIFICATE KEY, or ask ADDRESS PORT."""

import asyncio
import signal
import ssl
import sys

from aioquic.asyncio import connect, serve
from aioquic.quic.configuration import QuicConfiguration

what, address, port, *files = sys.argv[1:]
LONG = bytes(range(256)) * 2000


def answer(reader, writer):
    async def work():
        data = await reader.read()
        writer.write(data[::-1])
        writer.write_eof()

    tasks.append(asyncio.ensure_future(work()))


async def ask(client, data):
    reader, writer = await client.create_stream()
    writer.write(data)
    writer.write_eof()
    assert await reader.read() == data[::-1]


async def main():
    configuration = QuicConfiguration(is_client=what == "ask", alpn_protocols=["reverse"])
    if what == "ask":
        configuration.verify_mode = ssl.CERT_NONE
        async with connect(address, int(port), configuration=configuration) as client:
            await asyncio.gather(*(ask(client, b"%d" % n * 100) for n in range(20)), ask(client, LONG))
            await client.ping()
        print("asked")
    else:
        configuration.load_cert_chain(*files)
        server = await serve(address, int(port), configuration=configuration, stream_handler=answer)
        print("serving", flush=True)
        end = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, end.set)
        await end.wait()
        server.close()


tasks = []
asyncio.run(main())
