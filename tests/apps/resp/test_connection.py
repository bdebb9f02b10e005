"""HELLO, AUTH, CLIENT, CONFIG, COMMAND, INFO and DEBUG."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from respcommands import ALL
from respdraw import Draw
from resporacle import Oracle
from respplay import WAITS
from respwire import replies

from corelane.apps.resp import Client, Engine
from corelane.apps.resp.engine import encode

ROOT = Path(__file__).resolve().parents[3]
LATER = (b"waitaof",)  # commands of a Redis that is younger than Debian's


def test_errors_are_worded_as_redis_words_them(agree: Callable[..., None]) -> None:
    lines = """PING a b|ECHO|GET|SET a|NOPE|NOPE a b|CONFIG|CONFIG NOPE|CONFIG GET|CONFIG SET a|CONFIG SET maxmemory
        CONFIG SET nope 1|CONFIG SET maxmemory x|CONFIG GET maxmemory-policy|CONFIG SET maxmemory-policy allkeys-lru
        CONFIG SET maxmemory-policy noeviction|CONFIG SET maxmemory 100mb maxmemory 0|CONFIG GET proto-max-bulk-len
        OBJECT|OBJECT NOPE x|OBJECT ENCODING|MEMORY USAGE none|MEMORY NOPE|SELECT x|SELECT 99|SELECT 3|SELECT -1|AUTH x
        AUTH a b|AUTH a b c|AUTH default x|CLIENT|CLIENT NOPE|CLIENT GETNAME|CLIENT SETNAME me|CLIENT GETNAME
        CLIENT SETNAME a\x07|CLIENT REPLY x|CLIENT KILL x|CLIENT KILL ID x|CLIENT KILL TYPE x|CLIENT LIST TYPE x
        CLIENT KILL USER x
        CLIENT LIST ID x|CLIENT PAUSE x|CLIENT PAUSE 0 x|CLIENT NO-EVICT ON|CLIENT NO-EVICT x|CLIENT GETREDIR
        CLIENT UNPAUSE|HELLO 1|HELLO x|HELLO 4|HELLO 2 NOPE|HELLO 2 SETNAME|HELLO 3 AUTH a|SCAN|SCAN x|SCAN 0 MATCH
        WAIT 0 0|SWAPDB 0 99|SWAPDB x 0|SWAPDB 0 x|FLUSHALL x|DBSIZE x|COMMAND NOPE|COMMAND INFO nope|COMMAND GETKEYS
        COMMAND GETKEYS GET a|COMMAND GETKEYS NOPE|COMMAND GETKEYS PING|COMMAND GETKEYS MSET a 1 b 2|COMMAND GETKEYS GET
        COMMAND GETKEYS ZUNIONSTORE out 2 a b|COMMAND GETKEYS XREAD COUNT 1 STREAMS a b 0 0|COMMAND GETKEYS ZINTER x a
        DEBUG|DEBUG JMAP x y|FUNCTION FLUSH|FUNCTION FLUSH x|ACL WHOAMI|ROLE x|SLOWLOG LEN x|PUBSUB|LASTSAVE x
        DEBUG PROTOCOL string|DEBUG PROTOCOL integer|DEBUG PROTOCOL double|DEBUG PROTOCOL null|DEBUG PROTOCOL true
        DEBUG PROTOCOL bignum|DEBUG PROTOCOL nope
        CLIENT UNBLOCK 1 2 3|CLIENT PAUSE 1 ALL x|CLIENT PAUSE 0 WRITE|CLIENT PAUSE -1|CLIENT KILL ID 0|CLIENT LIST ID
        CONFIG SET maxclients 0|CONFIG SET timeout -1|CONFIG SET lfu-log-factor -1|CONFIG SET timeout 1 timeout 2
        SLOWLOG GET x|SLOWLOG GET -2|SLOWLOG GET 1 2|WAIT 0 x|WAIT 0 -1|WAIT x 0|XINFO STREAM none FULL
        HRANDFIELD none -9223372036854775808|LPOS none x RANK -9223372036854775808|ZRANGE none 0 1 BYSCORE BYLEX
        DEBUG PROTOCOL verbatim|DEBUG PROTOCOL map|DEBUG PROTOCOL set|DEBUG PROTOCOL array|DEBUG PROTOCOL false"""
    commands = [c.split() for line in lines.splitlines() for c in line.strip().split("|")]
    for limits in ("pubsub 1 2", "nope 0 0 0", "normal 0 0 x", "master 0 0 0"):
        commands.append(["CONFIG", "SET", "client-output-buffer-limit", limits])
    agree(commands, 2)
    agree(commands, 3)


@pytest.mark.parametrize("protocol", [2, 3])
def test_attributes_and_pushes_of_a_debugger(client: Client, oracle: Oracle, protocol: int) -> None:
    link = oracle.link()
    client.call("HELLO", protocol)
    link.call("HELLO", protocol)
    for kind in ("attrib", "push"):
        ours = client.call("DEBUG", "PROTOCOL", kind)
        link.send(encode("DEBUG", "PROTOCOL", kind))
        assert link.take(len(ours)) == ours
    assert link.call("ECHO", "the end").value == b"the end"
    link.close()


def test_hello_says_what_is_spoken(client: Client) -> None:
    (two, _), (three, raw) = replies(client.call("HELLO") + client.call("HELLO", 3))
    assert [x.value for x in two.value[:6]] == [b"server", b"redis", b"version", b"7.0.15", b"proto", 2]
    assert three.kind == "%"
    assert raw.startswith(b"%7\r\n$6\r\nserver\r\n")


def test_a_sleep_that_cannot_be_counted_is_none(engine: Engine, oracle: Oracle) -> None:
    """As in Redis, where the count of microseconds overflows. Tests' clock goes by what can be counted."""
    client, link = engine.client(), oracle.link()
    before = client.call("TIME")
    asked = ("1e300", "1e13", "inf", "-1", "0")
    theirs = link.calls([("DEBUG", "SLEEP", s) for s in asked])
    link.close()
    assert {raw for _, raw in theirs} == {b"+OK\r\n"}
    for s in asked:
        assert client.call("DEBUG", "SLEEP", s) == b"+OK\r\n", s
    assert client.call("TIME") == before
    assert client.call("DEBUG", "SLEEP", 5000) == b"+OK\r\n"
    assert replies(client.call("TIME"))[0][0].value[0].value == b"%d" % (1_700_000_000 + 5000)
    for _ in range(1100):
        client.call("DEBUG", "SLEEP", 9e12)
    assert client.call("SET", "a", 1, "EX", 1) == b"+OK\r\n"
    with Engine(1 << 20) as real:
        assert real.client().call("DEBUG", "SLEEP", "1e300") == b"+OK\r\n"


def test_command_tells_of_all_in_the_table(client: Client) -> None:
    count = replies(client.call("COMMAND", "COUNT"))[0][0].value
    rows = replies(client.call("COMMAND"))[0][0].value
    listed = [x.value for x in replies(client.call("COMMAND", "LIST"))[0][0].value]
    names = [name for name in listed if b"|" not in name]
    parts = [sub.value[0].value for row in rows for sub in row.value[9].value]
    docs = replies(client.call("COMMAND", "DOCS"))[0][0].value
    assert count == len(rows) == len(names) == len(set(names)) == len(docs) // 2
    assert [row.value[0].value for row in rows] == names
    assert parts == [name for name in listed if b"|" in name]


def test_the_table_is_listed_by_pattern_and_category(client: Client) -> None:
    def listed(*words: str) -> set[bytes]:
        return {x.value for x in replies(client.call("COMMAND", "LIST", "FILTERBY", *words))[0][0].value}

    assert listed("PATTERN", "get") == {b"get"}
    assert listed("PATTERN", "config|re*") == {b"config|resetstat", b"config|rewrite"}
    assert {b"client|help", b"command|help"} <= listed("PATTERN", "c*|help")
    assert {b"lpush", b"blpop", b"lrange"} <= listed("ACLCAT", "list")
    assert b"set" not in listed("ACLCAT", "list")
    assert listed("ACLCAT", "none") == listed("MODULE", "none") == set()
    assert client.call("COMMAND", "LIST", "FILTERBY", "x", "y") == b"-ERR syntax error\r\n"


def test_containers_have_help(client: Client) -> None:
    rows = replies(client.call("COMMAND"))[0][0].value
    containers = [row.value[0].value for row in rows if row.value[9].value]
    assert b"client" in containers
    for name in [*containers, b"debug"]:
        lines = [x.value for x in replies(client.call(name, "HELP"))[0][0].value]
        head = name.upper() + b" <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
        assert lines[0] == head
        assert b"HELP" in lines[1::2]
        assert all(line.startswith(b"    ") for line in lines[2::2])
        assert client.call(name, "HELP", "x").startswith(b"-ERR ")


def test_settings_by_their_former_names(client: Client) -> None:
    """Redis takes both names; what is so already may be asked for."""
    client.call("CONFIG", "SET", "zset-max-ziplist-entries", 7, "list-max-ziplist-size", -3)
    assert replies(client.call("CONFIG", "GET", "zset-max-listpack-entries"))[0][0].value[1].value == b"7"
    assert replies(client.call("CONFIG", "GET", "list-max-listpack-size"))[0][0].value[1].value == b"-3"
    everything = [x.value for x in replies(client.call("CONFIG", "GET", "*"))[0][0].value]
    for name, value in zip(everything[::2], everything[1::2], strict=True):
        assert client.call("CONFIG", "SET", name, value) == b"+OK\r\n", name
    assert client.call("CONFIG", "SET", "save", "3600 1").startswith(b"-ERR CONFIG SET failed")


def test_arity_flags_and_keys_are_those_of_redis(client: Client, oracle: Oracle) -> None:
    """Of each command that both have: name, arity, first and last key and step; flags but for what only Redis has."""
    names = [x.value for x in replies(client.call("COMMAND", "LIST"))[0][0].value]
    ours = replies(client.call("COMMAND", "INFO", *names))[0][0].value
    theirs = oracle.control.call("COMMAND", "INFO", *names).value
    only_theirs = {b"movablekeys", b"may_replicate", b"no_async_loading", b"no_mandatory_keys", b"skip_slowlog"}
    wrong = []
    for a, b in zip(ours, theirs, strict=True):
        if b.value is None:
            if a.value[0].value not in LATER:
                wrong.append((a.value[0].value, "Redis does not have it"))
            continue
        mine, yours = ([x.value for x in row.value] for row in (a, b))
        keys = ["blmpop", "sintercard", "zdiff", "zinter", "zintercard", "zunion", "lmpop", "zmpop", "bzmpop", "xread"]
        same_keys = mine[3:6] == yours[3:6] or mine[0].decode() in keys
        flags = [{x.value for x in of[2]} - only_theirs for of in (mine, yours)]
        container = isinstance(yours[9], list) and yours[9]
        if mine[:2] != yours[:2] or not same_keys or (flags[0] != flags[1] and not container):
            wrong.append((mine[:2], mine[3:6], flags[0], yours[1], yours[3:6], flags[1]))
    assert not wrong, "\n".join(map(str, wrong))


def test_commands_that_only_redis_has_are_listed(client: Client, oracle: Oracle) -> None:
    """In docs/resp.md, each of them, and none that is here."""
    ours = {x.value for x in replies(client.call("COMMAND", "LIST"))[0][0].value}
    theirs = {x.value for x in oracle.control.call("COMMAND", "LIST").value}
    table = (ROOT / "docs" / "resp.md").read_text().partition("| what is not here | commands |\n")[2]
    listed = {name for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split("|")[2])}
    listed = {name.lower().replace(" ", "|").encode() for name in listed}

    def listed_as(name: bytes) -> bytes:
        """As itself, with all parts of its container, or with all other parts of that."""
        ways = (name, name.partition(b"|")[0], name.partition(b"|")[0] + b"|...")
        return next((way for way in ways if way in listed), b"")

    found = {name: listed_as(name) for name in theirs - ours}
    assert not [name for name, way in found.items() if not way]
    assert listed == set(found.values())


def test_keys_of_a_command_line_are_those_that_redis_finds(agree: Callable[..., None]) -> None:
    """And what is done with them: of generated command lines of every kind, right and wrong."""
    draw = Draw(3)
    lines = [
        *(make(draw) for make in ALL for _ in range(150)),
        *WAITS,
        *(["MEMORY", "USAGE", "a"], ["XINFO", "STREAM", "a"], ["OBJECT", "FREQ", "a"], ["OBJECT", "HELP"]),
        *(["SORT", "a", *words] for words in (["STORE", "b", "STORE", "c"], ["GET", "STORE", "b"], ["STORE"])),
        *(["PING", "a"], ["PUBLISH", "a", "b"], ["WATCH", "a", "b"], ["MSET", "a", 1, "b"], ["XREAD", "STREAMS", "a"]),
        *(["BITFIELD", "a", *words.split()] for words in ("", "GET u8", "OVERFLOW SAT GET u8 0", "OVERFLOW", "x")),
    ]
    agree([["COMMAND", part, *map(str, words)] for words in lines for part in ("GETKEYS", "GETKEYSANDFLAGS")])


def test_clients_are_listed_and_killed(engine: Engine) -> None:
    a, b = engine.client("10.0.0.1:5"), engine.client("10.0.0.2:6")
    a.call("CLIENT", "SETNAME", "first")
    text = replies(b.call("CLIENT", "LIST"))[0][0].value.decode()
    assert "addr=10.0.0.1:5 laddr=127.0.0.1:6379 fd=0 name=first" in text
    assert len(text.splitlines()) == 2
    assert b.call("CLIENT", "KILL", "ADDR", "10.0.0.1:5") == b":1\r\n"
    assert a.ends == 2
    assert b.call("CLIENT", "KILL", "ID", 2, "SKIPME", "no") == b":1\r\n"
    assert b.ends == 1


def test_a_pause_holds_everybody(engine: Engine) -> None:
    a, b = engine.client(), engine.client()
    a.call("CLIENT", "PAUSE", 100)
    assert b.exchange(b"PING\r\n") == b""
    engine.move(101)
    engine.tick()
    b.feed(b"")
    assert b.take() == b"+PONG\r\n"


@pytest.mark.parametrize("section", ["server", "clients", "memory", "stats", "keyspace", "commandstats", "all"])
def test_info_has_its_sections(client: Client, section: str) -> None:
    client.call("SET", "a", 1, "EX", 100)
    text = replies(client.call("INFO", section))[0][0].value.decode()
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    assert fields
    if section in ("keyspace", "all"):
        assert fields["db0"].startswith("keys=1,expires=1,avg_ttl=")
    if section == "commandstats":
        assert fields["cmdstat_set"] == "calls=1,rejected_calls=0,failed_calls=0"


def test_monitor_shows_what_redis_shows(engine: Engine, oracle: Oracle) -> None:
    """Commands when they were run, with their database then; no passwords, and nothing of who administers."""
    lines = """SELECT 3|SET a 1|AUTH x|AUTH default x|HELLO 2|HELLO 3 AUTH default x|HELLO 2 SETNAME n AUTH default y
        MULTI|SET a 2|SELECT 1|GET a|EXEC|WATCH a|MULTI|NOPE|EXEC|GET|CONFIG GET x|CLIENT GETNAME|CLIENT LIST
        DEBUG JMAP|SLOWLOG GET|OBJECT HELP|INFO x|SUBSCRIBE a|UNSUBSCRIBE a|EXEC|MULTI|SET x 1|DISCARD|SWAPDB 0 1
        BLPOP none 0.01|MULTI|BLPOP none 0|AUTH z|EXEC|PUBLISH a b|INCR list|RPUSH list x|INCR list|RESET|WAIT 0 0"""
    commands = [c.split() for line in lines.splitlines() for c in line.strip().split("|")]
    mine, theirs, client, link = engine.client(), oracle.link(), engine.client(), oracle.link()
    mine.call("MONITOR")
    theirs.call("MONITOR")
    for words in [*commands, ["SET", "bytes", b'"\\\n\r\t\a\b\0\x7f\xff'], ["ECHO", "the end"]]:
        client.feed(encode(*words))
        engine.move(20)
        engine.tick()
        link.call(*words)
    shown = theirs.until(b'"ECHO" "the end"\r\n')
    link.close()
    theirs.close()
    line = re.compile(rb"\+\d+\.\d{6} \[(\d+) [^]]*\]")
    assert line.sub(rb"\1", mine.take()) == line.sub(rb"\1", shown)
