"""The Unix socket: the same commands, by a thread of its own."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import kvbinary as kb
import pytest
from cltest import wait_until
from kvserver import KvClient

from corelane.apps.kv.app import KvService, Options
from corelane.drivers.nic.memory import memory_link
from corelane.libos import Runtime
from corelane.runtime.errors import CorelaneError

Serve = Callable[..., AbstractContextManager[KvService]]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "kv.sock")


@pytest.fixture
def serve(path: str) -> Serve:
    """`with serve(**options) as service`: nothing is left of it afterwards."""

    @contextmanager
    def made(**options: Any) -> Iterator[KvService]:
        near, far = memory_link(ipv4=("10.0.0.1", "10.0.0.2"), ipv4_prefix=24)
        with near, far, Runtime(nic=near, poll="block") as runtime:
            service = KvService(
                runtime, Options(memory_bytes=16 << 20, huge_pages=0, unix=path, **options), manual_clock=True
            )
            try:
                runtime.start()
                yield service
                service.store.check()
            finally:
                runtime.stop()
                service.close()
        assert not Path(path).exists()

    return made


def client(path: str) -> KvClient:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(60.0)
    link.connect(path)
    return KvClient(link)


def test_both_protocols_and_large_values(serve: Serve, path: str) -> None:
    with serve() as service, client(path) as text, client(path) as binary:
        value = bytes(range(256)) * 3000
        assert text.ask(b"set a 0 0 %d\r\n%b\r\n" % (len(value), value)) == b"STORED\r\n"
        assert text.ask(b"get a\r\n" * 5 + b"mn\r\n", b"MN\r\n").count(value) == 5
        binary.send(kb.request(kb.GETK, b"a"))
        (got,) = kb.answers(binary.take(24 + 4 + 1 + len(value)))
        assert (got.key, got.value) == (b"a", value)
        assert Path(path).stat().st_mode & 0o777 == 0o700
        conns = text.ask(b"stats conns\r\n", b"END\r\n")
        assert b"STAT 2:addr unix:%b\r\nSTAT 2:state conn_listening" % path.encode() in conns
        assert conns.count(b":listen_addr unix:" + path.encode()) == 2
        assert b"STAT domain_socket %b\r\n" % path.encode() in text.ask(b"stats settings\r\n", b"END\r\n")
        assert service.stats()["conn_opened"] == 2


def test_who_watches_is_told_how_others_came(serve: Serve, path: str) -> None:
    with serve(), client(path) as watcher:
        assert watcher.ask(b"watch connevents\r\n") == b"OK\r\n"
        with client(path):
            assert b" type=conn_new rip=unix rport=0 transport=local " in watcher.until(b"\n")
        assert b" type=conn_close rip=unix rport=0 transport=local reason=normal " in watcher.until(b"\n")


def test_who_may_connect(serve: Serve, path: str) -> None:
    """Whatever the umask."""
    with serve(unix_mode="666"), client(path) as link:
        assert Path(path).stat().st_mode & 0o777 == 0o666
        assert b"STAT umask 666\r\n" in link.ask(b"stats settings\r\n", b"END\r\n")


@pytest.mark.parametrize("mode", ["0", "8", "1777"])
def test_a_mode_that_is_none_is_refused(serve: Serve, mode: str) -> None:
    with pytest.raises(CorelaneError, match="in octal"), serve(unix_mode=mode):
        pass


def test_who_does_not_read_is_not_read_from(serve: Serve, path: str) -> None:
    with serve() as service, client(path) as slow, client(path) as other:
        other.ask(b"set a 0 0 100000\r\n%b\r\n" % bytes(100_000))
        slow.send(b"get a\r\n" * 100)
        wait_until(lambda: service.stats()["conn_held_back"] > 0, 60.0, "an answer to be held back")
        assert other.ask(b"mn\r\n") == b"MN\r\n"
        assert service.stats()["conn_held_bytes"] < 1 << 20
        slow.link.shutdown(socket.SHUT_WR)
        assert len(slow.ended()) == 100 * (len("VALUE a 0 100000\r\n\r\nEND\r\n") + 100_000)


def test_limits_and_ends(serve: Serve, path: str) -> None:
    with serve(connections=2, idle_timeout_s=60) as service, client(path) as first, client(path) as idle:
        assert idle.ask(b"mn\r\n") == first.ask(b"mn\r\n") == b"MN\r\n"
        with client(path) as third:
            assert third.ended() == b"ERROR Too many open connections\r\n"
        service.store.time_s += 31
        first.ask(b"mn\r\n")
        service.store.time_s += 31
        assert idle.ended() == b""
        assert first.ask(b"version\r\nquit\r\n").startswith(b"VERSION")
        assert first.ended() == b""


def test_a_path_in_use_is_refused_and_one_that_was_left_is_taken(serve: Serve, path: str) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(path)
    left.listen()
    with pytest.raises(CorelaneError, match="in use"), serve():
        pass
    left.close()
    with serve(), client(path) as link:
        assert link.ask(b"mn\r\n") == b"MN\r\n"


def test_out_of_descriptors_the_listener_pauses_and_others_are_served(serve: Serve, path: str) -> None:
    """Who wants in waits, without the thread spinning beside him, and is served once there is a descriptor."""

    def told(one: KvClient) -> dict[str, str]:
        lines = one.ask(b"stats\r\n", b"END\r\n").decode().splitlines()
        return dict(line.split(" ", 2)[1:] for line in lines if line.startswith("STAT"))

    with serve() as service, client(path) as inside, contextlib.ExitStack() as waiting:
        assert inside.ask(b"get a\r\n") == b"END\r\n"
        # When this process collects garbage it may close descriptors. One that it closes between the last `dup` and
        # accept lets a client in. Then what is free is filled again, and the next client knocks.
        knocking = [waiting.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in range(32)]
        for one in knocking:
            one.settimeout(60.0)
        knocked: list[socket.socket] = []
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        held: list[int] = []

        def knock() -> bool:
            with contextlib.suppress(OSError):
                while True:
                    held.append(os.dup(knocking[0].fileno()))
            knocked.append(knocking.pop())
            knocked[-1].connect(path)
            with contextlib.suppress(AssertionError):
                wait_until(lambda: service.stats()["conn_pauses"] >= 1, 1.0)
            return service.stats()["conn_pauses"] >= 1

        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 256), hard))
            wait_until(knock, 60.0, "the listener to pause")
            stats = told(inside)
            assert stats["accepting_conns"] == "0"
            assert int(stats["listen_disabled_num"]) < 100, "each try waits for a while"
        finally:
            for fd in held:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for late in knocked:
            with KvClient(late) as link:
                assert link.ask(b"get a\r\n") == b"END\r\n"
        assert told(inside)["accepting_conns"] == "1"
