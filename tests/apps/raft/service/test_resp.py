"""RESP in front of a Raft node: what programs see, what is held, what a restart brings back (root)."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
import resporacle
from cltest import soak, wait_until
from raftlink import QUICK
from raftresp import OURS, PORT, RespNode, resp_node
from respcommands import ALL
from respdraw import Draw

from corelane.apps.raft.service.client import Client
from corelane.apps.raft.service.service import serve
from corelane.apps.raft.service.settings import RespSettings
from corelane.apps.resp.engine import Engine, encode
from corelane.cli.main import main
from corelane.runtime.errors import CorelaneError

pytestmark = pytest.mark.root


def test_redis_cli_and_redis_benchmark() -> None:
    with resp_node() as node:
        script = "SET a 1\nINCR a\nRPUSH l x y\nLRANGE l 0 -1\nWAIT 0 0\nINFO replication\nNOPE\n"
        out = node.run("redis-cli", stdin=script).splitlines()
        assert out[:6] == ["OK", "2", "2", "x", "y", "0"]
        assert "role:master" in out
        assert any(line.startswith("ERR unknown command 'NOPE'") for line in out)
        count = str(soak.examples(300, 100_000))
        for words in (("-c", "20"), ("-c", "5", "-P", "16")):
            said = node.run("redis-benchmark", "-q", "-n", count, *words)
            assert "Error" not in said, said
            assert said.count("requests per second") >= 18, said
        assert node.stat("port_resp_lost") == 0


def test_generated_commands_are_answered_as_redis_answers_them() -> None:
    if why := resporacle.missing():
        pytest.skip(why)
    draw = Draw(5)
    commands = [[w if isinstance(w, bytes) else str(w) for w in make(draw)] for make in ALL[:-1] for _ in range(40)]
    with resp_node() as node, node.client() as client, contextlib.closing(resporacle.Oracle()) as oracle:
        client.link.sendall(b"".join(encode(*words) for words in commands))
        ours = b"".join(client.reply() for _ in commands)
        resporacle.compare(commands, ours, oracle.control.calls(commands))


def test_reads_are_confirmed_and_writes_are_entries() -> None:
    with resp_node() as node, node.client() as client:
        for i in range(5):
            assert client.call("INCR", "n") == b":%d\r\n" % (i + 1)
        entries, queries = node.stat("port_resp_entries"), node.stat("port_resp_queries")
        assert entries >= 5
        for _ in range(5):
            assert client.call("GET", "n") == b"$1\r\n5\r\n"
        assert node.stat("port_resp_entries") == entries, "a read is no entry"
        assert node.stat("port_resp_queries") >= queries + 5, "each is confirmed, as nothing else was asked meanwhile"


def test_transactions_blocking_messages_and_expiry() -> None:
    with resp_node() as node, node.client() as a, node.client() as b:
        a.call("WATCH", "k")
        b.call("SET", "k", "other")
        a.call("MULTI")
        assert a.call("SET", "k", "mine") == b"+QUEUED\r\n"
        assert a.call("EXEC") == b"*-1\r\n"
        a.link.sendall(encode("BLPOP", "list", 0))
        wait_until(lambda: b"blocked_clients:1" in b.call("INFO", "clients"), 60, "it to block")
        assert b.call("RPUSH", "list", "v") == b":1\r\n"
        assert a.reply() == b"*2\r\n$4\r\nlist\r\n$1\r\nv\r\n"
        assert a.call("BLPOP", "list", "0.05") == b"*-1\r\n"
        a.call("SUBSCRIBE", "channel")
        assert b.call("PUBLISH", "channel", "text") == b":1\r\n"
        assert a.reply().endswith(b"$4\r\ntext\r\n")
        before = node.stat("port_resp_entries")
        assert b.call("SET", "short", "1", "PX", "30") == b"+OK\r\n"
        wait_until(lambda: b.call("EXISTS", "short") == b":0\r\n", 60, "it to expire")
        assert node.stat("port_resp_entries") >= before + 2, "that it has expired is an entry, too"


def test_a_value_of_many_entries_and_a_restart(tmp_path: Path) -> None:
    """From the log, and from a snapshot and what is behind it."""
    log = str(tmp_path / "log")
    big = bytes(range(256)) * 2048
    with resp_node(log=log) as node, node.client() as client:
        entries = node.stat("port_resp_entries")
        assert client.call("SET", "big", big) == b"+OK\r\n"
        assert node.stat("port_resp_entries") >= entries + 8
        for key in range(50):
            client.call("RPUSH", f"l{key % 5}", key)
            client.call("ZADD", f"z{key % 5}", key, f"m{key}")
        assert client.call("PEXPIREAT", "l0", 99_000_000_000_000) == b":1\r\n"
        assert client.call("FLUSHDB") == b"+OK\r\n"
        assert client.call("SET", "big", big[1:]) == b"+OK\r\n"
        assert client.call("SADD", "s", "x", "y") == b":2\r\n"
        assert client.call("DEBUG", "SLEEP", "1").startswith(b"-ERR DEBUG SLEEP")
    for _ in range(2):
        with resp_node(log=log) as node, node.client() as client:
            assert client.call("GET", "big") == b"$%d\r\n%b\r\n" % (len(big) - 1, big[1:])
            assert client.call("SCARD", "s") == b":2\r\n"
            assert client.call("DBSIZE") == b":2\r\n"


def test_values_are_saved_exported_and_restored(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """As raft-kv's items are; what is exported is good for another server, and tells which memory to give."""
    file, new = str(tmp_path / "group.snap"), tmp_path / "new.log"
    writes: list[tuple[bytes | str | int, ...]] = [
        *(("SET", "text", bytes(range(256))), ("PEXPIREAT", "text", 99_000_000_000_000), ("HSET", "hash", "f", "v")),
        *(("RPUSH", "list", *range(600)), ("ZADD", "sorted", "1.5", "m"), ("XADD", "stream", "5-1", "f", "v")),
        *(("SET", "past", "x", "PX", "1"), ("SELECT", "3"), ("SADD", "set", "x", "y")),
    ]
    questions: list[tuple[bytes | str | int, ...]] = [
        *(("GET", "text"), ("PEXPIRETIME", "text"), ("LRANGE", "list", 0, -1), ("HGETALL", "hash"), ("DBSIZE",)),
        *(("ZRANGE", "sorted", 0, -1, "WITHSCORES"), ("XINFO", "STREAM", "stream"), ("EXISTS", "past", "later")),
        *(("SELECT", "3"), ("SCARD", "set"), ("DBSIZE",)),
    ]
    with resp_node(log=str(tmp_path / "old.log")) as node, node.client() as client:
        for words in writes:
            assert not client.call(*words).startswith(b"-"), words
        client.call("SELECT", "0")
        wait_until(lambda: client.call("EXISTS", "past") == b":0\r\n", 60, "it to expire")
        with node.space.entered():
            assert main(["raft", "snapshot", "save", file, "--peers", f"1={OURS}:7400", "--timeout", "60"]) == 0
        answers = [client.call(*words) for words in questions]
        assert client.call("SET", "later", "1") == b"+OK\r\n"
    capsysbinary.readouterr()
    assert main(["raft", "snapshot", "export", file]) == 0
    with Engine() as engine:
        engine.apply(capsysbinary.readouterr().out)
        other = engine.client()
        assert [other.call(*words) for words in questions] == answers
        other.close()
    words = ["raft", "snapshot", "restore", file, "--id", "1", "--voters", "1", "--log", str(new), "--size", "32M"]
    assert main(words) == 0
    assert b"Start all of them with memory_bytes=%d\n" % QUICK.memory_bytes in capsysbinary.readouterr().out
    with resp_node(log=str(new)) as node, node.client() as client:
        assert [client.call(*words) for words in questions] == answers


def test_snapshots_under_writes() -> None:
    """The core's log has 256 entries: the state is saved all the while, and commands go on."""
    with resp_node(log_entries=256, trailing_entries=16) as node, node.client() as client:
        for i in range(1500):
            assert client.call("INCR", "n") == b":%d\r\n" % (i + 1)
        assert node.stat("node_snapshots") >= 3
        assert node.stat("node_snapshots_failed") == 0
        assert node.stat("port_resp_lost") == 0


def test_without_a_leader_clients_are_told() -> None:
    absent = {2: ("10.99.5.3", 7400), 3: ("10.99.5.4", 7400)}
    with resp_node(peers=absent) as node, node.client() as client:
        assert client.call("PING") == b"+PONG\r\n"
        told = b"-CLUSTERDOWN No node of the group leads: ask again\r\n"
        for words in (("GET", "a"), ("SET", "a", "1"), ("PUBLISH", "c", "m"), ("KEYS", "*"), ("SUBSCRIBE", "c")):
            assert client.call(*words) == told
        assert b"role:slave" in client.call("INFO", "replication")
        assert client.call("MULTI") == b"+OK\r\n"
        assert client.call("SET", "a", "1") == told
        assert client.call("EXEC").startswith(b"-EXECABORT")


def entry(kind: int, epoch: int, number: int, data: bytes) -> bytes:
    """As a node's own (apps/raft/node/resp_machine.h)."""
    return struct.pack("<IIQQ", int.from_bytes(b"CLRU", "little"), kind, epoch, number) + data


@pytest.mark.parametrize(
    "command",
    [b"set a 0 0 1\r\n1\r\n", entry(1, 7, 0, bytes(8)), entry(3, 7, 1, b"no unit")],
    ids=["kv", "open", "units"],
)
def test_clients_of_the_nodes_port_make_no_entries(command: bytes) -> None:
    """Such as raft-kv's. Forged ones would depose who executes commands, and then end the group by what nobody can
    apply."""
    with resp_node() as node, node.client() as resp:
        with (
            node.space.entered(),
            Client({1: (OURS, 7400)}, timeout_s=30) as client,
            pytest.raises(CorelaneError, match="come over RESP"),
        ):
            client.command(command)
        assert node.stat("port_resp_refused") == 1
        assert resp.call("SET", "a", "1") == b"+OK\r\n"


def test_settings_that_do_not_go_together() -> None:
    with pytest.raises(CorelaneError, match="one state machine"):
        serve(object(), 1, f"1={OURS}:7400", kv_port=11211, resp=RespSettings(port=PORT))


def held(node: RespNode) -> int:
    """Connections that are open."""
    return node.stat("resp_accepted") - node.stat("resp_closed")


def test_clients_that_leave_while_their_replies_wait() -> None:
    with resp_node() as node:
        for _ in range(30):
            with node.client() as client:
                client.link.sendall(encode("INCR", "n") * 50)
        wait_until(lambda: held(node) == 0, 60, "all to be gone")
        with node.client() as client:
            assert client.call("EXISTS", "n") == b":1\r\n"
