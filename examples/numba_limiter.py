"""A rate limiter in compiled Python, on TCP port 7000: docs/examples.md has its protocol.

python examples/numba_limiter.py [/run/corelane.sock [hits a window [ms of a window]]]

c_limiter.c and asyncio_limiter.py are the same service. All of it runs on one kthread, so nothing is locked.
"""

import sys

import numba
import numpy as np

from corelane import libos
from corelane.libos.numba.calls import le32, lru_get, lru_put, put_le32

LINE, NAME, NAMES = 64, 32, 1000  # bytes of a line and of a name at most; names that are remembered
USED, WINDOW, HITS = 0, 1, 2  # in the state: address of the table, number of the window, hits in it at most
NEWLINE, RETURN, SPACE, ZERO = b"\n\r 0"
HIT, LEFT, OK, FULL = (np.frombuffer(text, np.uint8) for text in (b"hit ", b"left ", b"ok ", b"full\n"))
USAGE = np.frombuffer(b"error say: hit NAME, or left NAME\n", np.uint8)
TOO_LONG = np.frombuffer(b"error a line has %d bytes at most\n" % LINE, np.uint8)

used = libos.LruTable(NAMES, key=f"S{NAME}", value=np.uint64, shards=1)
state = np.array([used.address, 0, 5], np.int64)


@numba.njit
def begins(line, word):  # type: ignore[no-untyped-def]
    same = 0
    while same < min(len(line), len(word)) and line[same] == word[same]:
        same += 1
    return same == len(word)


@numba.njit
def say(reply, text):  # type: ignore[no-untyped-def]
    reply[: len(text)] = text
    return len(text)


@numba.njit
def say_left(reply, number):  # type: ignore[no-untyped-def]
    digits, rest = 1, number
    while rest >= 10:
        digits, rest = digits + 1, rest // 10
    at = say(reply, OK)
    for i in range(digits):
        reply[at + digits - 1 - i] = ZERO + number % 10
        number //= 10
    reply[at + digits] = NEWLINE
    return at + digits + 1


@numba.njit
def answer(line, reply, state):  # type: ignore[no-untyped-def]
    hit = begins(line, HIT)
    name = line[len(HIT) if hit else len(LEFT) :]
    if not (hit or begins(line, LEFT)) or not 0 < len(name) <= NAME:
        return say(reply, USAGE)
    key, now = reply[512 : 512 + NAME], reply[1024:1032]  # what of the reply is not sent is room to work in
    key[:] = 0
    for i in range(len(name)):
        if name[i] <= SPACE:
            return say(reply, USAGE)
        key[i] = name[i]
    hits = 0
    if lru_get(state[USED], key, now) == 0 and le32(now, 0) == state[WINDOW]:
        hits = int(le32(now, 4))
    if hit:
        if hits >= state[HITS]:
            return say(reply, FULL)
        hits += 1
        put_le32(now, 0, state[WINDOW])
        put_le32(now, 4, hits)
        lru_put(state[USED], key, now)
    return say_left(reply, state[HITS] - hits)


@libos.tcp(port=7000, state=state)
def limiter(data, reply, state):  # type: ignore[no-untyped-def]
    end = 0
    while end < min(len(data), LINE) and data[end] != NEWLINE:
        end += 1
    if end == LINE:
        return -1, say(reply, TOO_LONG)
    if end == len(data):
        return 0, 0  # a part of a line: it is called again when more has come
    line = data[: end - 1] if end and data[end - 1] == RETURN else data[:end]
    return end + 1, answer(line, reply, state)


def next_window(state):  # type: ignore[no-untyped-def]
    state[WINDOW] += 1


if __name__ == "__main__":
    socket = sys.argv[1] if len(sys.argv) > 1 else "/run/corelane.sock"
    state[HITS] = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    every = libos.every(ms=int(sys.argv[3]) if len(sys.argv) > 3 else 1000, state=state)
    libos.Runtime(socket, name="numba-limiter").serve(limiter, every(next_window))
