"""A WebSocket client of blocking sockets that sends frames of its own making to a server that answers in capitals:
python try_websocket.py ADDRESS PORT. RFC 6455 says what each is answered by."""

import os
import socket
import struct
import sys

TEXT, BINARY, CLOSE, PING, PONG, MORE = 1, 2, 8, 9, 10, 0
REQUEST = (
    "GET / HTTP/1.1\r\nHost: corelane.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
MASK = b"\x01\x02\x03\x04"


def frame(opcode, data=b"", *, last=True, reserved=0, masked=True):
    """Section 5.2."""
    n, mask = len(data), 128 if masked else 0
    head = bytes([last << 7 | reserved << 4 | opcode])
    head += bytes([mask | n]) if n < 126 else struct.pack("!BH", mask | 126, n) if n < 65536 else b""
    if n >= 65536:
        head += struct.pack("!BQ", mask | 127, n)
    if not masked:
        return head + data
    key = (MASK * (n // 4 + 1))[:n]
    return head + MASK + (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(n, "big")


class Peer:
    """A connection that was upgraded."""

    def __init__(self):
        self.sock = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(REQUEST.encode())
        self.read = self.sock.makefile("rb")
        assert b" 101 " in self.read.readline()
        while self.read.readline() != b"\r\n":
            pass

    def frame(self):
        """(opcode, data) of the next one."""
        first, n = self.read.read(2)
        assert first & 0x80, "nobody asks the server for pieces"
        if n >= 126:
            (n,) = struct.unpack("!H" if n == 126 else "!Q", self.read.read(2 if n == 126 else 8))
        return first & 15, self.read.read(n)

    def ends(self, code):
        """It is closed, with that code."""
        opcode, data = self.frame()
        assert (opcode, data[:2]) == (CLOSE, struct.pack("!H", code)), (opcode, data)
        self.sock.sendall(frame(CLOSE, data[:2]))
        assert self.read.read() == b""
        self.sock.close()


def asked(sent, *answers, piece=1 << 20):
    """Send it, in pieces; the answers come, and the connection closes as both want."""
    peer = Peer()
    for at in range(0, len(sent), piece):
        peer.sock.sendall(sent[at : at + piece])
    for answer in answers:
        found = peer.frame()
        assert found == answer, (found[0], found[1][:80])
    peer.sock.sendall(frame(CLOSE, struct.pack("!H", 1000) + b"done"))
    assert peer.frame()[0] == CLOSE
    assert peer.read.read() == b""
    peer.sock.close()


def refused(code, sent):
    peer = Peer()
    peer.sock.sendall(sent)
    peer.ends(code)


for size in (0, 1, 125, 126, 127, 128, 65535, 65536, 1 << 20):
    asked(frame(TEXT, b"x" * size), (TEXT, b"X" * size))
for piece in (1, 3, 997):
    asked(frame(TEXT, b"slow" * 50), (TEXT, b"SLOW" * 50), piece=piece)
asked(frame(BINARY, bytes(range(256))), (BINARY, bytes(range(256)).upper()))
asked(b"".join(frame(TEXT, b"%d" % i) for i in range(500)), *((TEXT, b"%d" % i) for i in range(500)))
asked(frame(TEXT, "größe".encode()), (TEXT, "GRÖSSE".encode()))
# Control frames, between all others.
asked(frame(PING), (PONG, b""))
asked(frame(PING, b"p" * 125), (PONG, b"p" * 125))
asked(b"".join(frame(PING, b"%d" % i) for i in range(10)), *((PONG, b"%d" % i) for i in range(10)))
asked(frame(PONG, b"nobody asked") + frame(TEXT, b"a"), (TEXT, b"A"))
halves = frame(TEXT, b"one ", last=False), frame(MORE, b"two")
asked(halves[0] + halves[1], (TEXT, b"ONE TWO"))
asked(halves[0] + frame(PING, b"between") + halves[1], (PONG, b"between"), (TEXT, b"ONE TWO"))
asked(frame(TEXT, last=False) + frame(MORE, last=False) * 50 + frame(MORE), (TEXT, b""))
# What no peer may send.
refused(1002, frame(PING, b"p" * 126))
refused(1002, frame(PING, b"half", last=False))
for bit in (1, 2, 4):
    refused(1002, frame(TEXT, b"a", reserved=bit))
for opcode in (3, 7, 11, 15):
    refused(1002, frame(opcode, b"a"))
refused(1002, frame(TEXT, b"a", masked=False))
refused(1002, frame(MORE, b"of nothing"))
refused(1002, halves[0] + frame(TEXT, b"another"))
refused(1007, frame(TEXT, b"\xff\xfe"))
refused(1007, frame(TEXT, "ö".encode()[:1], last=False) + frame(MORE, b"a"))
refused(1009, frame(BINARY, b"x" * ((1 << 20) + 1)))
# The end.
for data in (b"\x03", struct.pack("!H", 999), struct.pack("!H", 1005), struct.pack("!H", 1006)):
    refused(1002, frame(CLOSE, data))
refused(1007, frame(CLOSE, struct.pack("!H", 1000) + b"\xff"))
peer = Peer()
peer.sock.sendall(frame(CLOSE) + frame(TEXT, b"too late"))
assert peer.frame() == (CLOSE, b"")
assert peer.read.read() == b""
for _ in range(5):  # gone in the middle of a frame
    Peer().sock.sendall(frame(TEXT, b"x" * 1000)[: 1 + os.urandom(1)[0]])
print("tried")
