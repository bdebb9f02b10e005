"""Fairness: a connection with a pipeline has so many commands a turn, memcached's -R, and then others have theirs."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import kvbinary as kb
import pytest
from kvserver import kv_server, lines

pytestmark = pytest.mark.root


def test_a_turn_ends_after_so_many_commands() -> None:
    """All are answered, in their order, however many turns that takes: one that yields is waited for by nobody else."""
    with kv_server(requests_per_event=7) as server, server.client() as client:
        client.ask(b"set n 0 0 1\r\n0\r\n")
        assert server.stat("conn_yields") == 0
        client.send(b"incr n 1\r\n" * 100)  # one segment
        assert client.until(b"\r\n100\r\n") == b"".join(b"%d\r\n" % i for i in range(1, 101))
        assert server.stat("conn_yields") == 14, "100 are 14 turns of 7, and one of 2"
        stats = lines(client.ask(b"stats\r\n", b"END\r\n"))
        assert stats["conn_yields"] == "14"
        assert lines(client.ask(b"stats settings\r\n", b"END\r\n"))["reqs_per_event"] == "7"


def test_of_the_binary_protocol_too() -> None:
    with kv_server(requests_per_event=7) as server, server.client() as client:
        client.send(kb.request(kb.NOOP) * 50)
        assert len(client.take(50 * 24)) == 50 * 24
        assert server.stat("conn_yields") == 7


def test_the_end_of_a_pipeline_is_not_lost_with_the_end_of_its_client() -> None:
    with kv_server(requests_per_event=1) as server, server.client() as client:
        client.send(b"mn\r\n" * 200 + b"quit\r\n" + b"mn\r\n" * 10)
        assert client.ended() == b"MN\r\n" * 200


@pytest.mark.parametrize("kthreads", [1, 2])
def test_others_are_served_between_turns(kthreads: int) -> None:
    """While a client sends without end, each question of the other one is answered."""
    with kv_server(kthreads=kthreads, requests_per_event=1) as server, server.client() as greedy:
        count = 20_000
        sender = threading.Thread(target=greedy.send, args=(b"mn\r\n" * count,))
        taker = threading.Thread(target=greedy.take, args=(4 * count,))
        with server.client() as other:
            sender.start()
            taker.start()
            for i in range(50):
                assert other.ask(b"set a %d 0 1\r\nx\r\n" % i) == b"STORED\r\n"
            sender.join()
            taker.join()
        assert server.stat("conn_yields") > 0


def test_a_client_of_the_unix_socket_has_turns_too(tmp_path: Path) -> None:
    path = f"{tmp_path}/kv"
    with kv_server(requests_per_event=7, unix=path) as server, socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60)
        s.connect(path)
        s.sendall(b"mn\r\n" * 50)
        answer = b""
        while len(answer) < 200:
            answer += s.recv(4096)
        assert answer == b"MN\r\n" * 50
        assert server.stat("conn_yields") == 7
