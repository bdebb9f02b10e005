"""Sessions of raftload over RESP: a client that finds who leads, and what it asked and was told.

A swap is WATCH, GET, MULTI, SET, EXEC on one connection: if it is done, nobody wrote the key in between.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence

from raftload import Session
from raftreal import ADDRESS, Group
from raftresp import RespClient
from respwire import Word

from corelane.apps.raft.service.client import Unknown
from corelane.apps.resp.engine import encode

PORT = 6379
NODES = {address: i for i, address in ADDRESS.items()}


class GroupClient:
    """A connection to whom the nodes say leads. Public attributes: leader, its id; resent, always 0."""

    def __init__(self, group: Group, timeout_s: float = 60.0) -> None:
        self._group, self._timeout_s = group, timeout_s
        self._next = list(ADDRESS.values())
        self.link: RespClient | None = None
        self.leader = self.resent = 0

    def _connect(self) -> RespClient:
        """To the next node; raises OSError."""
        address = self._next.pop(0)
        self._next.append(address)
        with self._group.space.entered():
            link = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        link.settimeout(1.0)
        try:
            link.connect((address, PORT))
        except OSError:
            link.close()
            raise
        link.settimeout(3.0)
        self.leader = NODES[address]
        return RespClient(link)

    def call(self, *words: Word) -> bytes:
        """One command's reply. Raises Unknown if it was sent and not answered."""
        return self.pipeline([words])[0]

    def pipeline(self, commands: Sequence[Sequence[Word]], *, anew: bool = True) -> list[bytes]:
        """Their replies, sent together. Raises Unknown if they were sent and not all answered; anew: who is told to go
        elsewhere, by the first reply, does so, and asks again there."""
        deadline = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline:
            try:
                self.link = self.link or self._connect()
            except OSError:
                continue
            told = self._exchange(b"".join(encode(*words) for words in commands), len(commands))
            if not anew or not self._elsewhere(told[0]):
                return told
        raise Unknown("ask the group", "no node led it in time")

    def _exchange(self, sent: bytes, n: int) -> list[bytes]:
        assert self.link
        told = []
        try:
            self.link.link.sendall(sent)
            while len(told) < n and (reply := self.link.reply()):
                told.append(reply)
        except OSError:
            told = []
        if len(told) < n:
            self.close()
            raise Unknown("ask a node", "its connection ended before it answered")
        return told

    def _elsewhere(self, reply: bytes) -> bool:
        """Whether the node does not do it; it is not asked next."""
        if not reply.startswith((b"-MOVED", b"-CLUSTERDOWN", b"-LOADING")):
            return False
        self.close()
        if reply.startswith(b"-MOVED"):
            address = reply.split()[2].split(b":")[0].decode()
            self._next.remove(address)
            self._next.insert(0, address)
        else:
            time.sleep(0.01)
        return True

    def close(self) -> None:
        """Once more is allowed."""
        if self.link:
            self.link.link.close()
        self.link = None


class RespSession(Session):
    """As Session, over RESP."""

    def __init__(self, number: int, make: Callable[[], GroupClient], *rest: object) -> None:
        super().__init__(number, make, *rest)  # type: ignore[arg-type]
        self.client: GroupClient  # type: ignore[assignment]

    def get(self, key: str) -> tuple[str | int | None, int]:
        """The value (a number for counters), and whether there is one: 1, 0, or -1 for no answer."""
        op = self._invoke("get", key)
        reply = self._call(op, lambda: self.client.call("GET", key))
        if reply is None:
            return None, -1
        if reply == b"$-1\r\n":
            return None, 0
        data = reply.split(b"\r\n")[1].decode()
        op.result = int(data) if key.startswith("n") else data
        return op.result, 1

    def swap(self, key: str, value: str) -> None:
        """Read, then write unless somebody wrote in between."""
        try:
            self.client.call("WATCH", key)
        except Unknown:
            return
        link = self.client.link
        found, there = self.get(key)
        if self.client.link is not link:
            return  # it watches nothing any more
        if there <= 0 or not isinstance(found, str):
            with contextlib.suppress(Unknown):
                self.client.call("UNWATCH")  # else what is written to it would refuse the next swap
            return
        op = self._invoke("cas", key, value, expected=found)
        commands = [("MULTI",), ("SET", key, value), ("EXEC",)]
        reply = self._call(op, lambda: self.client.pipeline(commands, anew=False)[-1])
        if reply is None:
            return
        if reply.startswith(b"-") or reply == b"*-1\r\n":
            self.history.drop(op)  # it leads no more, or somebody wrote since WATCH, maybe before GET: nothing was done
            return
        assert reply == b"*1\r\n+OK\r\n", reply

    def add_counter(self, key: str) -> None:
        """Begin a counter, anew."""
        self.command("put", key, 0)

    def command(self, kind: str, key: str, value: str | int | None = None) -> None:
        """put, append, add or delete."""
        words = {"put": "SET", "append": "APPEND", "add": "INCRBY", "delete": "DEL"}
        op = self._invoke(kind, key, value)  # type: ignore[arg-type]
        given = () if value is None else (value,)
        reply = self._call(op, lambda: self.client.call(words[kind], key, *given))
        if reply is None:
            return
        assert reply == b"+OK\r\n" if kind == "put" else reply[:1] == b":", reply
        if kind == "add":
            op.result = int(reply[1:])
        elif kind == "delete":
            op.refused = reply == b":0\r\n"
