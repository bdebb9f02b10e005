"""uvicorn: python on_uvicorn.py ADDRESS PORT [CERTIFICATE KEY]."""

import sys
from pathlib import Path

import uvicorn

sys.path.insert(0, str(Path(__file__).parent))
address, port, *files = sys.argv[1:]
tls = dict(zip(("ssl_certfile", "ssl_keyfile"), files, strict=False))
uvicorn.run("asgi:app", host=address, port=int(port), log_level="warning", loop="none", ws="websockets-sansio", **tls)
