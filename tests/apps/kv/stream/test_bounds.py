"""Peers that do not read, do not write, write nonsense or are too many: memory is bounded, and others are served."""

from __future__ import annotations

import random
import socket
import threading

import hostilepeers as hp
import kvbinary as kb
import pytest
from cltest import soak, wait_until
from kvserver import KvServer, kv_server, lines

pytestmark = pytest.mark.root


@pytest.mark.soak(short=True, takes_s=20)
@pytest.mark.parametrize("value", [1, 200_000])
def test_who_does_not_read_is_not_read_from(value: int) -> None:
    """Of a pipeline of a million commands the server takes as many as there is room for answers; all come at last.
    Another client is served all the while, and its waits are shown."""
    count = soak.examples(100_000, 1_000_000) if value == 1 else soak.examples(300, 3000)
    with kv_server() as server, server.client() as client, server.client() as other:
        client.ask(b"set a 0 0 %d\r\n%b\r\n" % (value, b"x" * value))
        asks = hp.Other(other.link, b"get none\r\n", b"END\r\n")
        sender = threading.Thread(target=client.send, args=(b"get a\r\n" * count,))
        sender.start()
        wait_until(lambda: server.stat("conn_held_back") > 0, 60.0, "the peer's window to be full")
        for _ in range(50):
            asks()
            assert server.stat("conn_held_bytes") < (1 << 20) + value
        conns = lines(other.ask(b"stats conns\r\n", b"END\r\n"))
        assert "conn_mwrite" in conns.values()
        assert server.stat("get_hits") < count
        answer = b"VALUE a 0 %d\r\n%b\r\nEND\r\n" % (value, b"x" * value)
        left = count * len(answer)
        while left:
            part = client.take(min(left, len(answer) * max(1, (1 << 20) // len(answer))))
            assert part == answer * (len(part) // len(answer))
            left -= len(part)
            asks()
        sender.join()
        assert server.stat("conn_held_bytes") == 0
        print(asks.shown())


def test_answers_to_what_came_before_the_end_are_given() -> None:
    """Of a client that sends, ends its side, and reads late."""
    with kv_server() as server, server.client() as client:
        client.ask(b"set a 0 0 100000\r\n%b\r\n" % bytes(100_000))
        client.send(b"get a\r\n" * 20)
        client.link.shutdown(socket.SHUT_WR)
        wait_until(lambda: server.stat("conn_held_back") > 0, 60.0, "the peer's window to be full")
        assert len(client.ended()) == 20 * (len("VALUE a 0 100000\r\n\r\nEND\r\n") + 100_000)


def test_more_connections_than_may_be_are_told_so() -> None:
    with kv_server(connections=3) as server:
        clients = [server.client() for _ in range(3)]
        for client in clients:
            assert client.ask(b"mn\r\n") == b"MN\r\n"
        with server.client() as rejected:
            assert rejected.ended() == b"ERROR Too many open connections\r\n"
        stats = lines(clients[0].ask(b"stats\r\n", b"END\r\n"))
        told = {name: stats[name] for name in ("max_connections", "curr_connections", "rejected_connections")}
        assert told == {"max_connections": "3", "curr_connections": "3", "rejected_connections": "1"}
        clients.pop().close()
        server.wait_for("conn_connections", 2)
        clients.append(server.client())
        assert clients[2].ask(b"mn\r\n") == b"MN\r\n"
        for client in clients:
            client.close()


def test_who_says_nothing_is_sent_away() -> None:
    """Idle, in the middle of a value, or while it throws one away; not who speaks."""
    with kv_server(idle_timeout_s=60) as server, server.client() as speaks:
        quiet = [server.client() for _ in range(3)]
        quiet[1].send(b"set a 0 0 1000\r\nhalf")
        quiet[2].send(b"set a 0 0 9000000\r\n")
        assert quiet[2].until(b"\n").startswith(b"SERVER_ERROR")
        wait_until(lambda: server.stat("conn_commands_held") == 1, 60.0, "half a value to have come")
        for _ in range(2):
            server.store.time_s += 31
            assert speaks.ask(b"mn\r\n") == b"MN\r\n"
        for client in quiet:
            assert client.ended() == b""
            client.close()
        server.wait_for("conn_connections", 1)
        stats = lines(speaks.ask(b"stats\r\n", b"END\r\n"))
        assert stats["idle_kicks"] == "3"
        assert lines(speaks.ask(b"stats settings\r\n", b"END\r\n"))["idle_timeout"] == "60"


def test_a_value_that_finds_no_memory_to_wait_in_is_refused_and_swallowed() -> None:
    limits = {"item_max_bytes": 270_000, "held_bytes": 300_000}
    with kv_server(**limits) as server, server.client() as first, server.client() as second:
        second.ask(b"set a 0 0 3\r\nold\r\n")
        first.send(b"set b 0 0 250000\r\n" + bytes(200_000))
        wait_until(lambda: server.stat("conn_held_bytes") > 200_000, 60.0, "the value to be held")
        second.send(b"set a 0 0 250000\r\n" + bytes(1000))
        assert second.until(b"\n") == b"SERVER_ERROR out of memory storing object\r\n"
        assert second.ask(bytes(249_000) + b"\r\nget a\r\n") == b"END\r\n", "the old value is out of date"
        (refused,) = kb.answers(binary(server, kb.request(kb.SET, b"a", extras=bytes(8), body=250_009)))
        assert (refused.status, refused.value) == (0x82, b"Out of memory")
        assert first.ask(bytes(50_000) + b"\r\n") == b"STORED\r\n"
        assert second.ask(b"set a 0 0 250000\r\n" + bytes(250_000) + b"\r\n") == b"STORED\r\n"
        first.send(b"set b 0 0 250000\r\n" + bytes(200_000))
        wait_until(lambda: server.stat("conn_held_bytes") > 200_000, 60.0, "the value to be held")
        assert second.ask(b"get a\r\n") == b"SERVER_ERROR out of memory writing get response\r\n"
        assert second.ended() == b""


def binary(server: KvServer, data: bytes) -> bytes:
    """The first answer to a request."""
    with server.client() as client:
        client.send(data)
        head = client.take(24)
        return head + client.take(kb.HEADER.unpack(head)[6])


@pytest.mark.soak(short=True, takes_s=20)
def test_thousands_that_come_and_go_leave_nothing_behind() -> None:
    count = soak.examples(1000, 10_000)
    draw = random.Random(3)
    starts = [b"", b"get a\r\n", b"set a 0 0 500000\r\nhalf", b"set a 0 0 9000000\r\n", b"\x80", b"get " + b"k" * 1000]
    with kv_server(connections=200) as server:
        open_now: list[socket.socket] = []
        for _ in range(count):
            s = server.connect()
            s.sendall(draw.choice(starts))
            open_now.append(s)
            if len(open_now) == 50:
                draw.shuffle(open_now)
                for old in open_now[25:]:
                    if draw.random() < 0.3:
                        old.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    old.close()
                del open_now[25:]
        for s in open_now:
            s.close()
        server.wait_for("conn_connections", 0)
        stats = server.service.stats()
        assert stats["conn_opened"] + stats["conn_rejected"] == count
        assert stats["conn_held_bytes"] == 0


def test_garbage_ends_in_an_answer_or_an_end() -> None:
    draw = random.Random(5)
    with kv_server() as server, server.client() as other:
        for i in range(60):
            with server.client() as client:
                garbage = draw.randbytes(draw.randrange(1, 5000))
                client.send((b"\x80" if i % 3 == 0 else b"") + garbage)
                client.link.shutdown(socket.SHUT_WR)
                client.ended()
        assert other.ask(b"mn\r\n") == b"MN\r\n"
        wait_until(lambda: server.stat("conn_connections") == 1, 60.0, "the others to be gone")


def test_connections_and_settings_are_shown_as_memcached_shows_them() -> None:
    with kv_server(connections=500, backlog=77) as server, server.client() as client, server.client() as other:
        other.send(b"set a 0 0 100\r\n12")
        wait_until(lambda: server.stat("conn_commands_held") == 1, 60.0, "half a value to have come")
        server.store.time_s += 7
        conns = lines(client.ask(b"stats conns\r\n", b"END\r\n"))
        ours, theirs = (s.link.getsockname() for s in (client, other))
        assert conns == {
            "0:addr": "tcp:10.98.0.2:11211",
            "0:state": "conn_listening",
            "0:secs_since_last_cmd": "0",
            "1:UDP": "UDP",
            "1:addr": "udp:10.98.0.2:11211",
            "1:state": "conn_read",
            "1:secs_since_last_cmd": "0",
            "3:addr": f"tcp:{ours[0]}:{ours[1]}",
            "3:listen_addr": "tcp:10.98.0.2:11211",
            "3:state": "conn_parse_cmd",
            "3:secs_since_last_cmd": "0",
            "4:addr": f"tcp:{theirs[0]}:{theirs[1]}",
            "4:listen_addr": "tcp:10.98.0.2:11211",
            "4:state": "conn_nread",
            "4:secs_since_last_cmd": "7",
        }
        settings = lines(client.ask(b"stats settings\r\n", b"END\r\n"))
        wanted = {"maxconns": "500", "tcpport": "11211", "udpport": "11211", "inter": "10.98.0.2", "tcp_backlog": "77"}
        assert {name: settings[name] for name in wanted} == wanted
