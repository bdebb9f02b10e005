"""Stock memcached as an oracle of the command layer: a connection to it, and how its uniques are made ours."""

from __future__ import annotations

import socket
from collections.abc import Callable

from corelane.bench.baseline.memcached import Memcached

FENCE = b"set :fence: 0 0 5\r\nfence\r\nget :fence:\r\n"
FENCED = b"VALUE :fence: 0 5\r\nfence\r\nEND\r\n"  # nothing else answers this: all before it was answered


class Oracle:
    """A connection to memcached, or to whatever `server` connects to, emptied of the keys given."""

    def __init__(self, server: Memcached | Callable[[], socket.socket], stored: list[bytes]) -> None:
        self._server = server
        self._stored = stored
        self._link = self._connect()

    def _connect(self) -> socket.socket:
        if isinstance(self._server, Memcached):
            return socket.create_connection((self._server.address, self._server.tcp_port), timeout=60)
        return self._server()

    def read(self, until: bytes) -> bytes:
        answer = b""
        while not answer.endswith(until):
            part = self._link.recv(1 << 16)
            assert part, f"memcached closed the connection after {answer!r}"
            answer += part
        return answer

    def execute(self, data: bytes) -> bytes:
        """Answer to `data`, which ends with FENCE."""
        self._link.sendall(data)
        return self.read(FENCED)

    def send(self, data: bytes) -> None:
        self._link.sendall(data)

    def reset(self) -> None:
        """Forget all items, through a new connection, as the old one may be in the middle of a command.

        Each by name, too: flush_all with a time before memcached's start brings back what a flush of this second hid.
        """
        self.close()
        self._link = self._connect()
        self._link.sendall(b"".join(b"delete %b\r\n" % key for key in self._stored) + b"flush_all\r\n")
        self.read(b"OK\r\n")

    def cas(self) -> int:
        """The unique that the next store will get, minus one."""
        self._link.sendall(b"set :cas: 0 0 1\r\nx\r\ngets :cas:\r\n")
        line = self.read(b"END\r\n").split(b"\r\n")[1]
        self._link.sendall(b"delete :cas:\r\n")
        assert self.read(b"\r\n") == b"DELETED\r\n"
        return int(line.split()[-1])

    def close(self) -> None:
        self._link.close()
