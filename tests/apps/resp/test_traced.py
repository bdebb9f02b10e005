"""What clients of Redis' protocols wait for, in the runtime's trace: replies for the log, commands for keys."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cltest import wait_until
from respserver import PORT, Served, serving

from corelane.libos.trace.pieces import joined
from corelane.libos.trace.stages import Table, table
from corelane.runtime._native import lib
from corelane.runtime.trace import Segment

pytestmark = pytest.mark.root


def ask(client: socket.socket, command: bytes) -> bytes:
    """A short answer."""
    client.sendall(command)
    return client.recv(10_000)


def traced(served: Served, do: Callable[[], None], n: int, *services: str) -> list[Table]:
    """The n messages of each service that are written down while something is done."""
    served.runtime.trace = "full"
    parts: list[Any] = []
    with Segment.of_process(os.getpid()) as segment:
        wait_until(lambda: segment.mode == "full", 60)
        with served.connect() as warm:  # its kthread has seen the mode when all that comes is drawn

            def all_are_drawn() -> bool:
                assert ask(warm, b"PING\r\n") == b"+PONG\r\n"
                flags = segment.read().messages["flags"]
                return len(flags) > 0 and bool((flags & lib.CL_TRACE_DRAWN).all())

            wait_until(all_are_drawn, 60, "its kthread to trace all")
        segment.skip()
        do()

        def whole() -> bool:
            parts.append(segment.read())
            names = segment.services()
            seen = joined(parts).messages
            return all(one in names and (seen["service"] == names.index(one)).sum() >= n for one in services)

        wait_until(whole, 60, f"messages of {services}")
        names = segment.services()
        all_of_them = table(joined(parts), names, segment.hz)
    tables = [all_of_them.of_service(names.index(service)) for service in services]
    assert [len(one.messages) for one in tables] == [n] * len(services)
    return tables


def test_replies_that_wait_for_the_log_are_messages_with_that_wait(tmp_path: Path) -> None:
    with serving(log=str(tmp_path / "log"), log_mib=64, memory_bytes=8 << 20) as served, served.connect() as client:

        def write() -> None:
            for _ in range(5):
                assert ask(client, b"SET a 1\r\n") == b"+OK\r\n"

        one, appends = traced(served, write, 5, f"RESP {PORT}", "log 1")
    assert set(one.waits["what"]) == {lib.CL_TRACE_WAITS_LOG}
    assert (one.stages["handler", "wait: log"] > 0).all()
    assert (appends.stages["handler", "wait: log", "written"] > 0).all()


def test_a_blocking_command_waits_for_keys_until_it_is_given_something() -> None:
    with serving() as served, served.connect() as client, served.connect() as other:

        def block() -> None:
            client.sendall(b"BLPOP list 0\r\n")
            wait_until(lambda: b"flags=b" in ask(other, b"CLIENT LIST\r\n"), 60, "the client to block")
            assert ask(other, b"RPUSH list x\r\n") == b":1\r\n"
            assert client.recv(100) == b"*2\r\n$4\r\nlist\r\n$1\r\nx\r\n"
            assert ask(client, b"BLPOP list 0.05\r\n").startswith(b"*-1"), "nobody gave it anything"

        (one,) = traced(served, block, 2, f"blocking {PORT}")
    assert set(one.waits["what"]) == {lib.CL_TRACE_WAITS_KEYS}
    assert one.stages["handler", "wait: keys"][1] >= 40_000
