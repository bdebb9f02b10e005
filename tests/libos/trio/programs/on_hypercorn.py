"""hypercorn: serve() at python ... ADDRESS PORT [CERTIFICATE KEY], until Ctrl-C."""

import signal
import sys
from pathlib import Path

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as serve_by_hypercorn

sys.path.insert(0, str(Path(__file__).parents[2] / "asyncio" / "programs"))
from asgi import app

address, port, *files = sys.argv[1:]
config = Config()
config.bind = [f"{address}:{port}"]
config.loglevel = "WARNING"
if files:
    config.certfile, config.keyfile = files


async def interrupted():
    with trio.open_signal_receiver(signal.SIGINT) as signals:
        async for _ in signals:
            return


async def serve():
    await serve_by_hypercorn(app, config, shutdown_trigger=interrupted)
