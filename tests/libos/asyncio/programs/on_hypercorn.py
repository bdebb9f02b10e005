"""hypercorn: python on_hypercorn.py ADDRESS PORT [CERTIFICATE KEY]."""

import asyncio
import signal
import sys
from pathlib import Path

from hypercorn.asyncio import serve
from hypercorn.config import Config

sys.path.insert(0, str(Path(__file__).parent))
from asgi import app

address, port, *files = sys.argv[1:]
config = Config()
config.bind = [f"{address}:{port}"]
config.loglevel = "WARNING"
if files:
    config.certfile, config.keyfile = files


async def main():
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, end.set)
    await serve(app, config, shutdown_trigger=end.wait)


asyncio.run(main())
