"""aiohttp: python on_aiohttp.py ADDRESS PORT [CERTIFICATE KEY]."""

import ssl
import sys

from aiohttp import web


async def hello(request):
    return web.Response(text="hello")


async def upper(request):
    return web.Response(body=(await request.read()).upper())


async def long(request):
    response = web.StreamResponse()
    await response.prepare(request)
    for i in range(100):
        await response.write(bytes([i]) * 10_000)
    await response.write_eof()
    return response


async def talk(request):
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(message.data.upper())
    return socket


address, port, *files = sys.argv[1:]
context = None
if files:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files)
app = web.Application()
app.add_routes([web.get("/", hello), web.post("/upper", upper), web.get("/long", long), web.get("/talk", talk)])
web.run_app(app, host=address, port=int(port), ssl_context=context, print=None)
