"""Commands without a session through a follower, over wires between nodes that double, reorder and lose datagrams."""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from pathlib import Path

import pytest
from cltest import NetnsFactory
from raftreal import ADDRESS, HOST, IDS, NetnsGroup, seed_of

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(180)]

COMMANDS, PATIENCE_S = 150, 100.0
BAD = {"loss": 0.05, "duplicate": 0.5, "reorder": 0.2, "delay": 0.1}


def test_each_acknowledged_incr_was_done_once(netns: NetnsFactory, tmp_path: Path) -> None:
    """The counter's answers tell of each step: one done twice, or after it was refused, leaves a gap.

    A group without a leader refuses at once. So there are as many commands as half of COMMANDS need to be acknowledged.
    """
    seed = seed_of("once")
    draw = random.Random(seed)
    with contextlib.closing(NetnsGroup(tmp_path, netns)) as group, group.client() as client:
        group.start(*IDS)
        assert client.command(b"set n 0 0 1\r\n0\r\n") == b"STORED\r\n"
        leader = client.leader
        via = draw.choice([i for i in IDS if i != leader])
        group.ask(leader, nic={"rx": BAD, "tx": BAD})  # not `via`'s: the client's own datagrams must come once
        sock = group.space.udp_socket((HOST, 0))
        sock.settimeout(60)
        last, unknown, deadline = 0, 0, time.monotonic() + PATIENCE_S
        for request in itertools.count():
            if request >= COMMANDS and last >= COMMANDS / 2:
                break
            assert time.monotonic() < deadline, f"seed {seed}: only {last} of {request} were acknowledged"
            tag = (request % 65536).to_bytes(2, "big")
            sock.sendto(tag + b"\0\0\0\1\0\0incr n 1\r\n", (ADDRESS[via], 11211))
            answer = sock.recv(65536)
            assert answer[:2] == tag, f"seed {seed}: a second answer, {answer!r}"
            text = answer[8:].strip()
            if text.startswith(b"SERVER_ERROR"):
                unknown += b"nothing was done" not in text
                time.sleep(0.01)
                continue
            value = int(text)
            assert last < value <= last + 1 + unknown, f"seed {seed}: {last}, then {unknown} unknown, then {value}"
            last, unknown = value, 0
        sock.close()
        stats = {i: group.ask(i, status={})["stats"] for i in IDS}
        group.ask(leader, nic={})
        value = int(client.query(b"get n\r\n").split(b"\r\n")[1])
        assert last <= value <= last + unknown, f"seed {seed}: {last} acknowledged, {unknown} unknown, {value} there"
        assert stats[leader]["port_duplicates"], stats  # the wire did double what was asked
        assert sum(s["port_retransmitted"] for s in stats.values()), stats
