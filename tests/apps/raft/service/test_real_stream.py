"""Pipelines over TCP to all nodes while leaders are killed: what was acknowledged was done once, in the order sent."""

from __future__ import annotations

import contextlib
import io
import random
import socket
import threading
from pathlib import Path

import pytest
from cltest import NetnsFactory, wait_until
from raftreal import ADDRESS, IDS, SwitchGroup, seed_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.soak(short=True, takes_s=20),
    pytest.mark.timeout(180),
]

KILLS = 3
PIPELINE = 20


class Counter:
    """A client that increments a counter of its own, in pipelines, through any node; ends with `stop`."""

    def __init__(self, group: SwitchGroup, number: int, draw: random.Random) -> None:
        self.group, self.key, self.draw = group, b"n%d" % number, draw
        self.last = self.unknown = self.acknowledged = self.broken = 0
        self.wrong = ""
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.stop.is_set() and not self.wrong:
            with contextlib.suppress(OSError), self._connect() as link, link.makefile("rb") as lines:
                self._talk(link, lines)

    def _connect(self) -> socket.socket:
        with self.group.space.entered():
            link = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        link.settimeout(3)
        try:
            link.connect((ADDRESS[self.draw.choice(IDS)], 11211))
        except OSError:
            link.close()
            raise
        return link

    def _talk(self, link: socket.socket, lines: io.BufferedReader) -> None:
        while not self.stop.is_set():
            count = self.draw.randrange(1, PIPELINE)
            self.unknown += count  # until they are answered
            link.sendall(b"incr %b 1\r\n" % self.key * count)
            for _ in range(count):
                line = lines.readline()
                if not line.strip().isdigit():
                    self.broken += 1
                    return  # an error, or the end: of the rest nothing is known
                value = int(line)
                self.unknown -= 1
                if not self.last < value <= self.last + 1 + self.unknown:
                    self.wrong = f"{self.key!r}: {self.last}, {self.unknown} unknown, then {value}"
                    return
                if value > self.last + 1:  # some of those that were not answered were done
                    self.unknown -= value - self.last - 1
                self.last = value
                self.acknowledged += 1


@pytest.mark.soak(takes_s=9)
def test_pipelines_through_all_nodes_while_leaders_are_killed(netns: NetnsFactory, tmp_path: Path) -> None:
    draw = random.Random(seed_of("stream"))
    with contextlib.closing(SwitchGroup(tmp_path, netns)) as group, group.client() as client:
        group.start(*IDS)
        for i in range(4):
            assert client.command(b"set n%d 0 0 1\r\n0\r\n" % i) == b"STORED\r\n"
        counters = [Counter(group, i, random.Random(draw.random())) for i in range(4)]
        for _ in range(KILLS):
            before = [c.acknowledged for c in counters]
            for c, b in zip(counters, before, strict=True):
                wait_until(lambda c=c, b=b: c.wrong or c.acknowledged > b + 50, 60, "increments")
            leader = client.leader
            group.kill(leader)
            assert client.query(b"get n0\r\n")
            group.start(leader)
        for c in counters:
            c.stop.set()
        for c in counters:
            c.thread.join(60)
            assert not c.thread.is_alive()
            assert not c.wrong
            value = int(client.query(b"get %b\r\n" % c.key).split(b"\r\n")[1])
            assert c.last <= value <= c.last + c.unknown, (c.key, c.last, c.unknown, value)
        assert sum(c.broken for c in counters), "no connection met the death of a leader"
