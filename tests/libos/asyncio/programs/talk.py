"""A client of a WebSocket, with blocking sockets: python talk.py URL."""

import ssl
import sys

from websockets.sync.client import connect

context = ssl._create_unverified_context() if sys.argv[1].startswith("wss:") else None
with connect(sys.argv[1], ssl=context, proxy=None) as socket:
    for message in ["a", "x" * 100_000, "end"]:
        socket.send(message)
        assert socket.recv(20) == message.upper()
    assert socket.ping().wait(60)
print("talked")
