"""The run around its streams: whose sockets are whose, listeners, connecting, sleep, threads, signals, the end."""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from triostreams import HOST, echo, opened, pair, receive_exactly, settled, turns

from corelane import libos
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.tap.tap import Tap
from corelane.libos import trio as libos_trio
from corelane.runtime.errors import CorelaneError

OWN = "10.255.255.1"


async def ask(host: str, port: int, data: bytes, **options: Any) -> bytes:
    """Of an echo server."""
    async with await trio.open_tcp_stream(host, port, **options) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(stream.send_all, data)
        return await receive_exactly(stream, len(data))


async def serving(host: str, then: Callable[[int], Awaitable[None]], port: int = 0) -> None:
    """Call `then` with the port of an echo server."""
    listeners = await trio.open_tcp_listeners(port, host=host)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, echo, listeners)
        await then(listeners[0].socket.getsockname()[1])
        nursery.cancel_scope.cancel()


def test_a_server_listens_on_both_worlds() -> None:
    async def main() -> None:
        async def both(port: int) -> None:
            assert await ask(OWN, port, b"ours") == b"ours"
            assert libos_trio.endpoints() == libos_trio.Endpoints(ours=3, linux=1)
            assert await ask(HOST, port, b"linux") == b"linux"  # without loopback 127.0.0.1 is Linux'
            assert libos_trio.endpoints() == libos_trio.Endpoints(ours=3, linux=3)
            async with trio.open_nursery() as nursery:
                for host in (OWN, HOST) * 20:
                    nursery.start_soon(ask, host, port, host.encode())

        await serving("0.0.0.0", both)

    libos_trio.run(main, loopback=False)


def test_a_server_at_an_own_address_is_ours_alone() -> None:
    async def main() -> None:
        async def alone(port: int) -> None:
            assert await ask(OWN, port, b"ours") == b"ours"
            assert await ask(OWN, port, b"from there", local_address=OWN) == b"from there"
            assert libos_trio.endpoints() == libos_trio.Endpoints(ours=5)
            with pytest.raises(OSError, match="failed") as caught:
                await ask(HOST, port, b"nobody")
            assert isinstance(caught.value.__cause__, ExceptionGroup)
            assert isinstance(caught.value.__cause__.exceptions[0], ConnectionRefusedError)
            with pytest.raises(OSError, match="another listener") as refused:
                await trio.open_tcp_listeners(port, host=OWN)
            assert refused.value.errno == errno.EADDRINUSE

        await serving(OWN, alone)

    libos_trio.run(main, loopback=False)


def test_a_port_where_nobody_listens() -> None:
    async def main() -> None:
        sock = trio.socket.socket()
        with pytest.raises(ConnectionRefusedError):
            await sock.connect((OWN, 9))
        sock.close()

    libos_trio.run(main)


def test_connecting_that_is_cancelled_closes_the_socket(run: Any) -> None:
    async def main() -> None:
        [listener] = await trio.open_tcp_listeners(0, host=HOST)
        async with listener:
            sock = trio.socket.socket()
            with trio.CancelScope() as scope:
                scope.cancel()
                await sock.connect(listener.socket.getsockname())
            assert sock.fileno() == -1
            async with opened(listener) as (ours, theirs):
                await ours.send_all(b"next")
                assert await receive_exactly(theirs, 4) == b"next"

    run(main)


def test_a_silent_peer_lets_connecting_be_given_up() -> None:
    """An address on the link that nobody has: by cancelling, and by closing the socket."""

    async def main() -> None:
        sock = trio.socket.socket()
        with trio.move_on_after(0.01) as scope:
            await sock.connect(("10.255.255.2", 9))
        assert scope.cancelled_caught
        assert sock.fileno() == -1
        sock = trio.socket.socket()

        async def connect() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await sock.connect(("10.255.255.2", 9))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(connect)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(OSError, match="progress") as caught:
                await sock.connect(("10.255.255.2", 9))
            assert caught.value.errno == errno.EALREADY
            sock.close()

    libos_trio.run(main, poll="block")


def test_accepting_is_woken_by_close_and_is_one_tasks(run: Any) -> None:
    async def main() -> None:
        [listener] = await trio.open_tcp_listeners(0, host=HOST)

        async def accept() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await listener.accept()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await listener.accept()
            await listener.aclose()
        with pytest.raises(trio.ClosedResourceError):
            await listener.accept()

    run(main)


def test_accepting_that_is_cancelled_loses_nobody(run: Any) -> None:
    async def main() -> None:
        [listener] = await trio.open_tcp_listeners(0, host=HOST)
        async with listener:
            with trio.move_on_after(0.01) as scope:
                await listener.accept()
            assert scope.cancelled_caught
            async with opened(listener) as (ours, theirs):
                await ours.send_all(b"here")
                assert await receive_exactly(theirs, 4) == b"here"

    run(main)


def test_more_than_the_backlog_are_refused_and_counted() -> None:
    async def main() -> None:
        [listener] = await trio.open_tcp_listeners(0, host=OWN, backlog=2)
        async with listener:
            streams = [await trio.open_tcp_stream(OWN, listener.socket.getsockname()[1]) for _ in range(5)]
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert libos_trio.endpoints().refused == 3
            lost = 0
            for stream in streams:
                with trio.move_on_after(0.01):
                    try:
                        await stream.receive_some()
                    except trio.BrokenResourceError:
                        lost += 1
                await stream.aclose()
            assert lost == 3
            for _ in range(2):
                await (await listener.accept()).aclose()

    libos_trio.run(main)


def test_who_has_gone_before_it_was_accepted_harms_nobody() -> None:
    async def main() -> None:
        [listener] = await trio.open_tcp_listeners(0, host=OWN)
        async with listener:
            stream = await trio.open_tcp_stream(OWN, listener.socket.getsockname()[1])
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            await stream.aclose()
            await trio.testing.wait_all_tasks_blocked(0.01)
            async with await listener.accept() as gone:
                gone.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with pytest.raises(trio.BrokenResourceError):
                    await gone.receive_some()

    libos_trio.run(main)


def test_sockets_of_other_kinds_are_trios_own() -> None:
    async def main() -> None:
        one, two = trio.socket.socketpair()
        for family in (socket.AF_INET6, socket.AF_UNIX):
            with trio.socket.socket(family) as sock:
                assert type(sock) is type(one)
        await one.send(b"pair")
        assert await two.recv(4) == b"pair"
        one.close()
        two.close()

    libos_trio.run(main)


def test_sockets_that_are_passed_in() -> None:
    async def main() -> None:
        sock = socket.create_server((HOST, 0))
        listener = trio.SocketListener(libos_trio.from_stdlib_socket(sock))
        async with listener, opened(listener) as (ours, theirs):
            await ours.send_all(b"in")
            assert await receive_exactly(theirs, 2) == b"in"
            assert libos_trio.endpoints().ours == 3
        left, right = socket.socketpair()
        for end in (left, right):
            assert type(libos_trio.from_stdlib_socket(end)) is type(trio.socket.from_stdlib_socket(end))
            end.close()

    libos_trio.run(main)


def test_an_idle_run_sleeps() -> None:
    async def main() -> tuple[int, int]:
        [listener] = await trio.open_tcp_listeners(0, host=HOST)
        async with listener, opened(listener):
            before = await settled()
            await trio.sleep(0.1)
            return before, turns()

    before, after = libos_trio.run(main, poll="block")
    assert after - before < 20


def test_what_comes_wakes_a_run_that_sleeps(run: Any) -> None:
    """From this process' own timer, after both sides have slept."""

    async def main() -> None:
        async with pair() as (ours, theirs), trio.open_nursery() as nursery:

            async def later() -> None:
                for _ in range(3):
                    await trio.sleep(0.02)
                    await ours.send_all(b"woken")

            nursery.start_soon(later)
            for _ in range(3):
                assert await receive_exactly(theirs, 5) == b"woken"

    run(main)


def test_threads_run_and_call_back_while_it_waits() -> None:
    """Also while it spins, waiting for the network."""

    async def main() -> int:
        def work() -> int:
            return sum(trio.from_thread.run_sync(int, "1") for _ in range(50))

        return await trio.to_thread.run_sync(work)

    for poll in ("spin", "block"):
        assert libos_trio.run(main, poll=poll) == 50


def test_tasks_that_never_wait_do_not_hold_the_network_up(run: Any) -> None:
    async def main() -> None:
        async with pair() as (ours, theirs), trio.open_nursery() as nursery:

            async def busy() -> None:
                while True:
                    await trio.lowlevel.checkpoint()

            nursery.start_soon(busy)
            await ours.send_all(b"through")
            assert await receive_exactly(theirs, 7) == b"through"
            nursery.cancel_scope.cancel()

    run(main)


@pytest.mark.parametrize("poll", ["block", "adaptive"])
def test_ctrl_c(poll: str) -> None:
    async def main() -> None:
        async with pair() as (ours, theirs):
            await ours.send_all(b"there")
            await receive_exactly(theirs, 5)
            threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
            await theirs.receive_some()

    with pytest.raises(KeyboardInterrupt):
        libos_trio.run(main, poll=poll)


def test_ctrl_c_in_a_handler_of_the_runtimes() -> None:
    """It is for trio's main task, which may be asleep."""

    @libos.every(ms=1, compiled=False)
    def interrupted() -> None:
        if not raised:
            raised.append(True)
            signal.raise_signal(signal.SIGINT)

    raised: list[bool] = []
    nic, end = memory_link((1, 1), ipv4=(OWN, "10.255.255.2"), ipv4_prefix=24)
    with nic, end, libos.Runtime(nic=nic, adopted=1, poll="block") as runtime:
        runtime.bind(interrupted)
        with pytest.raises(KeyboardInterrupt):
            libos_trio.run(trio.sleep_forever, runtime=runtime)
        assert libos_trio.run(trio.lowlevel.checkpoint, runtime=runtime) is None


def test_a_runtime_of_the_callers_stays_his() -> None:
    nic, end = memory_link((1, 1), ipv4=(OWN, "10.255.255.2"), ipv4_prefix=24)
    with nic, end, libos.Runtime(nic=nic, adopted=1, poll="block") as runtime:
        for _ in range(2):

            async def main() -> None:
                async def again(port: int) -> None:
                    assert libos_trio.current_runtime() is runtime
                    assert await ask(OWN, port, b"again") == b"again"

                await serving(OWN, again, 7000)

            libos_trio.run(main, runtime=runtime)
            assert not runtime.stopped


def test_a_runtime_that_is_stopped_under_the_run_ends_its_connections() -> None:
    async def main() -> None:
        async with pair() as (ours, theirs), trio.open_nursery() as nursery:

            async def ended(stream: trio.SocketStream) -> None:
                with pytest.raises(trio.BrokenResourceError) as caught:
                    await stream.receive_some()
                assert isinstance(caught.value.__cause__, OSError)
                assert caught.value.__cause__.errno == errno.ESHUTDOWN

            nursery.start_soon(ended, ours)
            nursery.start_soon(ended, theirs)
            await trio.to_thread.run_sync(libos_trio.current_runtime().stop)
        before = await settled()
        await trio.sleep(0.02)
        assert turns() - before < 20

    libos_trio.run(main)


def test_a_runtime_that_does_not_fit_is_refused() -> None:
    nic, end = memory_link((1, 1), ipv4=(OWN, "10.255.255.2"), ipv4_prefix=24)
    with nic, end, libos.Runtime(nic=nic, kthreads=1) as runtime, pytest.raises(CorelaneError):
        libos_trio.run(trio.lowlevel.checkpoint, runtime=runtime)


def test_what_was_not_closed_is_told_of_and_closed() -> None:
    async def main() -> None:
        async with pair() as (_, theirs):
            sock = trio.socket.socket()
            [listener] = await trio.open_tcp_listeners(0, host=HOST)
            await sock.connect(listener.socket.getsockname())
            left = await listener.accept()
            await listener.aclose()
            with pytest.warns(ResourceWarning, match="unclosed"):
                del sock
            assert await left.receive_some() == b""
            await left.aclose()
            del theirs

    libos_trio.run(main)


def test_options_for_trios_own_run() -> None:
    class Counts(trio.abc.Instrument):
        tasks = 0

        def task_spawned(self, task: Any) -> None:
            self.tasks += 1

    async def main() -> int:
        async with pair() as (ours, theirs):
            await ours.send_all(b"mine")
            assert await receive_exactly(theirs, 4) == b"mine"
        return libos_trio.endpoints().ours

    counts = Counts()
    options = libos_trio.options(instruments=[counts])
    assert trio.run(main, **options) == 3
    assert counts.tasks > 0
    with pytest.raises(trio.TrioInternalError) as caught:
        trio.run(main, **options)
    assert "one run" in str(caught.value.__cause__)


def test_outside_of_a_run() -> None:
    async def main() -> None:
        sock = socket.socket()
        assert type(libos_trio.from_stdlib_socket(sock)) is type(trio.socket.from_stdlib_socket(sock))
        sock.close()
        with pytest.raises(RuntimeError, match="no runtime"):
            libos_trio.endpoints()

    trio.run(main)


@pytest.mark.root
def test_linux_at_the_other_end(netns: Any) -> None:
    """Both roles over a tap: Linux connects to a server of ours, and a client of ours to a server of Linux'."""
    space = netns.add()
    with space.entered():
        nic = Tap(address="10.99.0.1/24", ipv4="10.99.0.2/24")
        listener = socket.create_server(("10.99.0.1", 0))

    def client() -> None:
        with space.entered():
            sock = socket.create_connection(("10.99.0.2", 7000), timeout=60)
        with sock:
            sent = os.urandom(200_000)
            threading.Thread(target=sock.sendall, args=(sent,)).start()
            got = b""
            while len(got) < len(sent):
                got += sock.recv(65536)
            assert got == sent

    def server() -> None:
        sock, _ = listener.accept()
        with sock:
            while data := sock.recv(65536):
                sock.sendall(data)

    async def main() -> None:
        async def both(port: int) -> None:
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(trio.to_thread.run_sync, client)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, server)
                assert await ask(*listener.getsockname(), b"z" * 1_000_000) == b"z" * 1_000_000
            assert libos_trio.endpoints().linux == 0

        await serving("10.99.0.2", both, 7000)

    with nic, listener:
        libos_trio.run(main, nic=nic)
