"""A client of Raft nodes over ordinary UDP sockets: commands exactly once, linearizable reads.

    with Client("1=10.77.0.11:7400,2=10.77.0.12:7400,3=10.77.0.13:7400") as client:
        client.command(b"deposit 5")
        client.query(b"balance")

It needs nothing of the dataplane: any process that can reach a node may use it.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from types import TracebackType
from typing import Any, Self

from ....runtime.errors import CorelaneError
from ....runtime.typed import typed
from ..._native import ffi, lib
from ..node.machine import CommandRefused
from .service import Addresses, cluster_of, parse_peers

_LINK = struct.Struct("<4sIIHH")  # link.h
_FRAME = struct.Struct("<4sBBHIIQIIQQQ")  # apps/raft/node/frame.h
_PIECE = 1400
_PIECES_MAX = 4096  # pieces.h
_REFUSED_S = 0.005
_LOOK = "look whether most of the nodes are up, and can be reached from here"
_OPEN, _CLOSE, _APPLY, _QUERY = 1, 2, 0, 3
_OK, _RETRY, _BUSY, _EXPIRED, _OUT_OF_ORDER, _TOO_LARGE, _REFUSED, _REPLY_TOO_LARGE, _QUERY_FAILED, _APPLY_FAILED = (
    range(10)
)


class Unknown(CorelaneError):
    """No answer that tells: the command may have been applied or not, or may be later."""


class NotSent(CorelaneError):
    """The command was not sent, so it was not applied and never will be: it may be asked for again."""


class CommandFailed(CorelaneError):
    """The state machine could not apply it, and says that nothing has changed (AtomicMachine)."""


class ReplyTooLarge(CorelaneError):
    """It was done, and there is no reply: that is longer than the nodes' reply_bytes."""


def _crc(data: bytes) -> int:
    return int(lib.cl_crc32c(0, ffi.from_buffer(data), len(data)))


def _too_large(what: str, size: int, most: int) -> CorelaneError:
    why = f"{size} bytes are more than the nodes take" + (f": {most} at most" if most else "")
    return CorelaneError(what, why, "nothing was done; ask for it in parts", errno.EMSGSIZE)


def _error(what: str, status: int, size: int, reply: bytes) -> CorelaneError | None:
    """What is to be raised for an answer that says more than to ask again."""
    if status == _TOO_LARGE:
        return _too_large(what, size, int.from_bytes(reply, "little"))
    if status == _REFUSED:
        return CommandRefused(reply)
    if status == _REPLY_TOO_LARGE:
        why = "it was done, and its reply is longer than the nodes' reply_bytes"
        return ReplyTooLarge(what, why, "answer less, or start all nodes with more")
    if status == _APPLY_FAILED:
        why = f"the state machine could not apply it: {reply.decode(errors='replace')}"
        return CommandFailed(what, why, "nothing has changed")
    if status == _QUERY_FAILED:
        return CorelaneError(what, f"the state machine could not answer: {reply.decode(errors='replace')}")
    return None


def _encode(cluster: int, kind: int, ticket: int, session: int, sequence: int, data: bytes) -> bytes:
    size = _FRAME.size + len(data)
    fields = (cluster, 0, 0, ticket, session, sequence)
    bare = _FRAME.pack(b"CLRQ", 1, kind, 0, 0, size, *fields) + data
    return _FRAME.pack(b"CLRQ", 1, kind, 0, _crc(bare), size, *fields) + data


class Client:
    """A session with a group of nodes. One command at a time; not for several threads at once (make one each).

    peers, group: as for `serve`. timeout_s: how long a call tries before it raises Unknown or NotSent; resend_s: how
    long it waits for an answer before it asks again, the next node if need be. sock: a UDP socket to use, or
    what has its methods. Public
    attributes: resent, requests that were sent again; leader, the node that leads by the last answer, 0 if none. Raises
    CorelaneError.
    """

    @typed("make a Raft client")
    def __init__(
        self,
        peers: str | Addresses,
        *,
        group: str = "",
        timeout_s: float = 10.0,
        resend_s: float = 0.05,
        sock: Any = None,
    ) -> None:
        self._nodes = parse_peers(peers)
        self._cluster, self._timeout_s, self._resend_s = cluster_of(group), timeout_s, resend_s
        self._socket = sock or socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._at = min(self._nodes)  # the node asked next
        self._ticket = int.from_bytes(os.urandom(6), "little") << 8
        self._frames = 0
        self._pieces: dict[tuple[tuple[str, int], int], dict[int, bytes]] = {}
        self._session, self._sequence = 0, 0
        self._unsent: OSError | None = None  # the last request's, if the kernel did not take it
        self.resent = 0
        self.leader = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the session, if the nodes can be told without waiting, and close the socket."""
        if self._session:
            self._send(_CLOSE, self._ticket + 1, self._session, 0, b"")
            self._session = 0
        self._socket.close()

    @typed("do a command")
    def command(self, data: bytes) -> bytes:
        """Apply a command exactly once; its reply.

        Raises Unknown if it may have been applied or not, for one because the session has ended: the next command
        begins another. Raises ReplyTooLarge if it was applied, CommandRefused if the state machine refused it,
        CommandFailed if it could not apply it and is atomic, NotSent if no session could be opened for it in time, and
        another CorelaneError if it was not applied: with EMSGSIZE if
        it is longer than the nodes take, which it says.
        """
        deadline = time.monotonic() + self._timeout_s
        if not self._session:
            self._session = self._open(deadline)
        self._sequence += 1
        return self._ask(_APPLY, self._session, self._sequence, data, deadline)

    @typed("do a query")
    def query(self, data: bytes) -> bytes:
        """A linearizable read, asked for in 1500 bytes at most.

        Raises Unknown, ReplyTooLarge, CommandRefused, or CorelaneError with what the machine raised.
        """
        return self._ask(_QUERY, 0, 0, data, time.monotonic() + self._timeout_s)

    def _open(self, deadline: float) -> int:
        """The number of a session of our own."""
        word = int.from_bytes(os.urandom(8), "little") | 1  # asked again, it gets the same session
        try:
            return int.from_bytes(self._ask(_OPEN, 0, word, b"", deadline), "little")
        except Unknown as error:
            why = f"no session could be opened for it: {error.why}"
            raise NotSent("do a command", why, f"it was not sent, so ask again; {_LOOK}") from None

    def _send(self, kind: int, ticket: int, session: int, sequence: int, data: bytes) -> None:
        """One that the kernel refuses (no route, no permission) is as good as lost: a later one may get through."""
        frame = _encode(self._cluster, kind, ticket, session, sequence, data)
        self._frames = (self._frames + 1) & 0xFFFFFFFF
        self._unsent = None
        for i, at in enumerate(range(0, len(frame), _PIECE)):
            header = _LINK.pack(b"CLRL", self._frames, len(frame), i, _PIECE)
            try:
                self._socket.sendto(header + frame[at : at + _PIECE], self._nodes[self._at])
            except OSError as e:
                if e.errno == errno.EBADF:
                    raise CorelaneError("ask a Raft node", "the client is closed", "make another one") from None
                self._unsent = e

    def _ask(self, kind: int, session: int, sequence: int, data: bytes, deadline: float) -> bytes:
        what = "do a query" if kind == _QUERY else "do a command"
        if _FRAME.size + len(data) > _PIECE * _PIECES_MAX:
            raise _too_large(what, len(data), _PIECE * _PIECES_MAX - _FRAME.size)
        self._ticket += 1
        sent = False
        while time.monotonic() < deadline:
            sent = True
            self._send(kind, self._ticket, session, sequence, data)
            answer = self._wait(min(deadline, time.monotonic() + self._resend_s))
            self.leader = answer[1] if answer else self.leader
            if answer is not None and answer[0] == _OK:
                return answer[2]
            if answer is not None and answer[0] in (_EXPIRED, _OUT_OF_ORDER):
                # It may have ended after an earlier copy was applied: sent again, or doubled by the network.
                self._session = self._sequence = 0
                why = "the session ended, before or after it was applied"
                raise Unknown(what, why, "look whether it was applied before you ask anew")
            if answer is not None and (error := _error(what, answer[0], len(data), answer[2])):
                raise error
            self._next_node(answer[1] if answer else 0)
            if answer is not None:
                time.sleep(min(self._resend_s / 5, 0.005))  # no leader yet, or busy
            self.resent += 1
        if not sent:  # opening the session took all the time
            raise NotSent(what, f"no time was left to send it, of {self._timeout_s} s", "ask again")
        raise Unknown(what, f"no answer in {self._timeout_s} s{self.why_unsent()}", _LOOK)

    def why_unsent(self) -> str:
        """What the kernel said of the last request, if it did not take it."""
        return f", and the last request could not be sent: {self._unsent.strerror}" if self._unsent else ""

    def _next_node(self, leader: int) -> None:
        ids = sorted(self._nodes)
        self._at = leader if leader in self._nodes and leader != self._at else ids[(ids.index(self._at) + 1) % len(ids)]

    def _wait(self, deadline: float) -> tuple[int, int, bytes] | None:
        """(status, leader, reply) of the answer to the newest ticket, or None."""
        while (left := deadline - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                datagram, source = self._socket.recvfrom(65536)
            except TimeoutError:
                return None
            except OSError:  # of a datagram that was refused somewhere: not at once again
                time.sleep(min(left, _REFUSED_S))
                return None
            frame = self._piece(datagram, source)
            if frame is None or len(frame) < _FRAME.size:
                continue
            magic, _, status, _, crc, _, cluster, _, _, ticket, leader, _ = _FRAME.unpack_from(frame)
            good = magic == b"CLRA" and cluster == self._cluster and ticket == self._ticket
            if good and _crc(frame[:8] + bytes(4) + frame[12:]) == crc:
                return status, leader, frame[_FRAME.size :]
        return None

    def _piece(self, datagram: bytes, source: tuple[str, int]) -> bytes | None:
        """The frame that a datagram completes."""
        if len(datagram) < _LINK.size:
            return None
        magic, number, size, i, piece = _LINK.unpack_from(datagram)
        if magic != b"CLRL" or not piece:
            return None
        if len(self._pieces) > 16:
            self._pieces.clear()
        got = self._pieces.setdefault((source, number), {})
        got[i] = datagram[_LINK.size :]
        if len(got) * piece < size:
            return None
        del self._pieces[source, number]
        return b"".join(got[n] for n in sorted(got))
