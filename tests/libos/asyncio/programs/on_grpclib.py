"""grpclib, of bytes: python on_grpclib.py serve|ask ADDRESS PORT."""

import asyncio
import signal
import sys

from grpclib.client import Channel, StreamStreamMethod, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler
from grpclib.encoding.base import CodecBase
from grpclib.server import Server


class Bytes(CodecBase):
    __content_subtype__ = "bytes"

    def encode(self, message, message_type):
        return message

    def decode(self, data, message_type):
        return data


class Service:
    async def upper(self, stream):
        await stream.send_message((await stream.recv_message()).upper())

    async def each(self, stream):
        async for message in stream:
            await stream.send_message(message.upper())

    def __mapping__(self):
        return {
            "/test/upper": Handler(self.upper, Cardinality.UNARY_UNARY, bytes, bytes),
            "/test/each": Handler(self.each, Cardinality.STREAM_STREAM, bytes, bytes),
        }


async def serve(address, port):
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, end.set)
    server = Server([Service()], codec=Bytes())
    await server.start(address, port)
    await end.wait()
    server.close()
    await server.wait_closed()


async def ask(address, port):
    async with Channel(address, port, codec=Bytes()) as channel:
        upper = UnaryUnaryMethod(channel, "/test/upper", bytes, bytes)
        long = b"x" * 200_000
        assert await asyncio.gather(*map(upper, [b"a", b"b", long])) == [b"A", b"B", long.upper()]
        async with StreamStreamMethod(channel, "/test/each", bytes, bytes).open() as stream:
            for i in range(20):
                await stream.send_message(b"message %d" % i, end=i == 19)
                assert await stream.recv_message() == b"MESSAGE %d" % i
            assert await stream.recv_message() is None
    print("asked")


what, address, port = sys.argv[1:]
asyncio.run({"serve": serve, "ask": ask}[what](address, int(port)))
