"""The replicated store on real processes: overwritten for long when nearly full, with restarts and snapshots."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cltest import wait_until
from raftreal import ADDRESS, HOST, IDS, SwitchGroup

from corelane.apps.raft.service.client import Client

pytestmark = [pytest.mark.root, pytest.mark.slow]
BATCH = 40
LAYOUT = ("bytes", "curr_items", "log_dead_bytes", "log_free_bytes", "index_overflow_buckets")
"""Of memcached's stats: the same on all replicas, whatever was asked of them and however they came to their state."""


@pytest.fixture
def group(tmp_path: Path, netns: Any) -> Iterator[SwitchGroup]:
    made = SwitchGroup(tmp_path, netns, controlled=True)
    try:
        made.start(*IDS)
        yield made
    except BaseException:
        print(made.last_words())
        raise
    finally:
        made.close()


def put(client: Client, first: int, n: int, value_bytes: int, keys: int) -> list[bytes]:
    """Set n keys from number `first` on, counted round `keys`, in one command; the answers."""
    value = b"v" * value_bytes
    return client.command(
        b"".join(b"set k%d 0 0 %d\r\n%s\r\n" % (i % keys, value_bytes, value) for i in range(first, first + n))
    ).splitlines()


def stats(sock: socket.socket, address: str) -> bytes:
    """The answer to memcached's stats, in one or more datagrams; nothing if a part did not come."""
    parts: dict[int, bytes] = {}
    total = 1
    sock.sendto(b"\0\7\0\0\0\1\0\0stats\r\n", (address, 11211))
    while len(parts) < total:
        try:
            data = sock.recv(65536)
        except TimeoutError:
            return b""
        total = int.from_bytes(data[4:6], "big")
        parts[int.from_bytes(data[2:4], "big")] = data[8:]
    return b"".join(parts[k] for k in sorted(parts))


def layout(group: SwitchGroup, i: int) -> dict[str, int]:
    """What node i says of its store."""
    said = [b""]

    def complete() -> bool:
        with group.space.udp_socket((HOST, 0)) as sock:  # a late answer goes to the old one
            sock.settimeout(2)
            said[0] = stats(sock, ADDRESS[i])
        return bool(said[0])

    wait_until(complete, 60, f"stats of node {i}")
    words = [line.split() for line in said[0].splitlines()]
    found = {w[1].decode(): w[2] for w in words if len(w) == 3}
    return {name: int(found[name]) for name in LAYOUT}


def agree(group: SwitchGroup) -> dict[int, dict[str, Any]]:
    """Wait until all nodes have applied the same; what they say."""
    said: dict[int, dict[str, Any]] = {}

    def same() -> bool:
        said.update({i: group.ask(i) for i in IDS})
        return len({(s["applied"], s["commit"]) for s in said.values()}) == 1

    wait_until(same, 120, "all nodes to have applied the same")
    return said


@pytest.mark.soak(takes_s=8)
@pytest.mark.timeout(300)
def test_a_nearly_full_store_is_overwritten_ten_times_with_a_node_down(group: SwitchGroup) -> None:
    with group.client(timeout_s=120) as client:
        keys = 0
        while (answers := put(client, keys, BATCH, 1000, 1 << 30)) == [b"STORED"] * BATCH:
            keys += BATCH
        assert answers[-1] == b"SERVER_ERROR out of memory storing object"
        keys += answers.count(b"STORED")
        spare = keys // 15
        client.command(b"".join(b"delete k%d\r\n" % i for i in range(keys - spare, keys)))  # 75 % to 70 %
        keys -= spare
        client.query(b"get k1\r\n")
        before = agree(group)
        away = next(i for i in IDS if before[i]["role"] != "leader")
        group.kill(away)
        for number in range(0, 10 * keys, BATCH):
            # Sizes turn about, so that they are not replaced in place; never larger than at first in all.
            answers = put(client, number, BATCH, 1000 if number // keys % 2 else 400, keys)
            assert set(answers) == {b"STORED"}, answers
        group.start(away)
        after = agree(group)
        assert max(s["stats"]["node_snapshots"] for s in after.values()) > 0
        assert after[away]["snapshot_index"] > before[away]["applied"], "it was caught up by a snapshot"
        for number in range(0, 2 * keys, BATCH):
            assert set(put(client, number, BATCH, 1000 if number // keys % 2 else 400, keys)) == {b"STORED"}
        agree(group)
        seen = {i: layout(group, i) for i in IDS}
        assert seen[1] == seen[2] == seen[3]
        assert seen[1]["curr_items"] == keys
    for i in IDS:
        group.kill(i)
    group.start(*IDS)
    with group.client(timeout_s=120) as client:
        assert set(put(client, 0, BATCH, 1000, keys)) == {b"STORED"}
        agree(group)
        seen = {i: layout(group, i) for i in IDS}
        assert seen[1] == seen[2] == seen[3]
        assert seen[1]["curr_items"] == keys
