"""The loop around its transports: whose endpoints are whose, time, sleep, TLS, files, asyncio's other descriptors."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from cltest import wait_until

from corelane import libos
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.tap.tap import Tap
from corelane.libos import asyncio as libos_asyncio
from corelane.runtime.errors import CorelaneError

HOST = "127.0.0.1"
OWN = "10.255.255.1"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def quiet() -> None:
    """Wait until no server's task works any more: one that the loop's end cancels would say so."""
    while any(getattr(task.get_coro(), "__name__", "") in ("echo", "serve") for task in asyncio.all_tasks()):
        await asyncio.sleep(0.001)


async def ask(host: str, port: int, data: bytes, **options: Any) -> bytes:
    reader, writer = await asyncio.open_connection(host, port, **options)
    writer.write(data)
    answer = await reader.readexactly(len(data))
    writer.close()
    await writer.wait_closed()
    await quiet()
    return answer


def test_streams_echo(run: Any) -> None:
    async def main() -> None:
        async with await asyncio.start_server(echo, HOST, 0) as server:
            port = server.sockets[0].getsockname()[1]
            answers = await asyncio.gather(*(ask(HOST, port, b"%d" % n * 1000) for n in range(50)))
            assert answers == [b"%d" % n * 1000 for n in range(50)]

    run(main)


def test_tls_servers_and_clients(run: Any, tls: Any) -> None:
    async def main() -> None:
        async with await asyncio.start_server(echo, HOST, 0, ssl=tls[0]) as server:
            port = server.sockets[0].getsockname()[1]
            for size in (1, 100_000):
                assert await ask(HOST, port, b"x" * size, ssl=tls[1]) == b"x" * size

    run(main)


def test_start_tls_on_both_sides(run: Any, tls: Any) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"STARTTLS\n"
        writer.write(b"go\n")
        await writer.drain()
        await writer.start_tls(tls[0])
        await echo(reader, writer)

    async def main() -> None:
        async with await asyncio.start_server(serve, HOST, 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"STARTTLS\n")
            assert await reader.readline() == b"go\n"
            await writer.start_tls(tls[1])
            writer.write(b"y" * 70_000)
            assert await reader.readexactly(70_000) == b"y" * 70_000
            writer.close()
            await writer.wait_closed()
            await quiet()

    run(main)


def test_files_are_sent(run: Any, tmp_path: Path) -> None:
    """In several pieces."""
    content = os.urandom(600_000)
    (tmp_path / "file").write_bytes(content)

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with open(tmp_path / "file", "rb") as file:
            assert await asyncio.get_running_loop().sendfile(writer.transport, file, 1000) == 599_000
        writer.write(b"the end")
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(serve, HOST, 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            assert await reader.read() == content[1000:] + b"the end"
            writer.close()
            await writer.wait_closed()
            await quiet()

    run(main)


def test_files_are_sent_from_their_offset(run: Any, tmp_path: Path) -> None:
    """Wherever they are read by others; and what cannot be sent is refused."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            ended.set_result(await reader.read())
            writer.close()

        async with await asyncio.start_server(serve, HOST, 0) as server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            with (tmp_path / "file").open("w+b") as file:
                file.write(b"0123456789")
                file.flush()
                for offset, count, sent in ((0, None, 10), (0, 4, 4), (3, None, 7), (9, 5, 1)):
                    assert await loop.sendfile(writer.transport, file, offset, count) == sent
                    assert file.tell() == offset + sent
                for offset, count in ((0, 0), (0, -1), (-1, None)):
                    with pytest.raises(ValueError, match=r"a (positive|non-negative) integer"):
                        await loop.sendfile(writer.transport, file, offset, count)
            with (tmp_path / "file").open() as text, pytest.raises(ValueError, match="binary"):
                await loop.sendfile(writer.transport, text)  # type: ignore[arg-type]
            writer.close()
            await writer.wait_closed()
            assert await ended == b"0123456789" + b"0123" + b"3456789" + b"9"
            await quiet()

    run(main)


def test_everything_else_of_asyncio_is_as_ever(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with await asyncio.start_server(echo, HOST, 0) as server:  # beside all this
            port = server.sockets[0].getsockname()[1]
            unix = await asyncio.start_unix_server(echo, tmp_path / "socket")
            reader, writer = await asyncio.open_unix_connection(tmp_path / "socket")
            writer.write(b"unix")
            assert await reader.readexactly(4) == b"unix"
            writer.close()
            await quiet()
            unix.close()
            got: asyncio.Future[str] = loop.create_future()
            loop.add_signal_handler(signal.SIGUSR1, got.set_result, "signal")
            os.kill(os.getpid(), signal.SIGUSR1)
            assert await got == "signal"
            assert await asyncio.to_thread(threading.get_ident) != threading.get_ident()
            ours, theirs = os.pipe()
            seen: asyncio.Future[bytes] = loop.create_future()
            loop.add_reader(ours, lambda: seen.set_result(os.read(ours, 9)) if not seen.done() else None)
            os.write(theirs, b"pipe")
            assert await seen == b"pipe"
            loop.remove_reader(ours)
            os.close(ours)
            os.close(theirs)
            assert await loop.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
            assert await ask(HOST, port, b"tcp") == b"tcp"

    run(main)


def test_subprocesses() -> None:
    async def main() -> bytes:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(6 * 7)", stdout=subprocess.PIPE)
        out, _ = await process.communicate()
        return out

    assert libos_asyncio.run(main()) == b"42\n"


def test_timers_are_never_early_and_in_order(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with await asyncio.start_server(echo, HOST, 0):
            order: list[int] = []
            done = loop.create_future()
            for n in (3, 1, 2):
                due = loop.time() + n * 0.0004
                loop.call_at(due, lambda n=n, due=due: (order.append(n), order.append(loop.time() >= due)))
            loop.call_later(0.002, done.set_result, None)
            await done
            assert order == [1, True, 2, True, 3, True]

    run(main)


def test_a_timer_wakes_the_loop_to_the_nanosecond() -> None:
    """What the kernel was asked for, as /proc says it: nothing is rounded to milliseconds."""

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        poller = loop._selector.poller
        due = time.monotonic_ns() + 60_000_000_123
        loop.call_later(60, lambda: None)

        def look() -> None:
            info = Path(f"/proc/self/fdinfo/{poller.timer_fd}").read_text()
            fields = dict(line.split(": ", 1) for line in info.splitlines() if ": " in line)
            seconds, ns = fields["it_value"].strip("()").split(", ")
            left.append(int(seconds) * 10**9 + int(ns))
            loop.call_soon_threadsafe(seen.set)

        left: list[int] = []
        seen = asyncio.Event()
        thread = threading.Timer(0.02, look)
        thread.start()
        await seen.wait()
        thread.join()
        assert 0 < left[0] <= due - time.monotonic_ns() + 20_000_000_000
        assert left[0] % 1_000_000 != 0

    libos_asyncio.run(main(), poll="block")


def test_an_idle_loop_sleeps() -> None:
    async def main() -> tuple[int, int]:
        loop: Any = asyncio.get_running_loop()
        async with await asyncio.start_server(echo, HOST, 0):
            before = -100
            while loop._selector.poller.counts()[0] - before > 10:  # until it sleeps
                before = loop._selector.poller.counts()[0]
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.1)
            return before, loop._selector.poller.counts()[0]

    before, after = libos_asyncio.run(main(), poll="block")
    assert after - before < 20


def test_threads_run_while_it_waits() -> None:
    """Also while it spins, waiting for the network."""

    async def main() -> int:
        stop = threading.Event()
        count = 0

        def work() -> None:
            nonlocal count
            while not stop.is_set():
                count += 1

        thread = threading.Thread(target=work)
        thread.start()
        while count < 1000:
            await asyncio.sleep(0.0005)
        stop.set()
        thread.join()
        return count

    assert libos_asyncio.run(main(), poll="spin") >= 1000


def test_a_server_listens_on_both_worlds() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        async with await asyncio.start_server(echo, "0.0.0.0", 0) as server:
            port = server.sockets[0].getsockname()[1]
            assert await ask(OWN, port, b"ours") == b"ours"
            assert loop.endpoints() == libos_asyncio.Endpoints(ours=3, linux=1)
            assert await ask(HOST, port, b"linux") == b"linux"  # without loopback 127.0.0.1 is Linux'
            assert loop.endpoints() == libos_asyncio.Endpoints(ours=3, linux=3)

    libos_asyncio.run(main(), loopback=False)


def test_a_server_at_an_own_address_is_ours_alone() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        async with await asyncio.start_server(echo, [OWN, HOST], 0) as server:
            ports = {sock.getsockname()[0]: sock.getsockname()[1] for sock in server.sockets}
            assert await ask(OWN, ports[OWN], b"ours") == b"ours"
            assert loop.endpoints() == libos_asyncio.Endpoints(ours=3, linux=1)
            with pytest.raises(ConnectionRefusedError):
                await ask(HOST, ports[OWN], b"nobody")
            with pytest.raises(OSError, match="bind") as caught:
                await asyncio.start_server(echo, OWN, ports[OWN])
            assert caught.value.errno == errno.EADDRINUSE

    libos_asyncio.run(main(), loopback=False)


def test_listeners_of_one_address_and_port_share_its_flows(run: Any) -> None:
    async def main() -> None:
        counts = [0, 0]

        def serve(n: int) -> Any:
            async def count(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                counts[n] += 1
                writer.write(b"%d" % n)
                writer.close()

            return count

        async def which(port: int) -> bytes:
            reader, writer = await asyncio.open_connection(HOST, port)
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            return answer

        first = await asyncio.start_server(serve(0), HOST, 0, reuse_port=True)
        port = first.sockets[0].getsockname()[1]
        second = await asyncio.start_server(serve(1), HOST, port, reuse_port=True)
        answers = [await which(port) for _ in range(64)]
        assert set(answers) == {b"0", b"1"}
        assert counts == [answers.count(b"0"), answers.count(b"1")]
        first.close()
        assert {await which(port) for _ in range(8)} == {b"1"}
        with pytest.raises(OSError, match=r"in use|another"):
            await asyncio.start_server(serve(0), HOST, port)
        second.close()
        with pytest.raises(ConnectionRefusedError):
            await which(port)

    run(main)


def test_a_socket_that_was_passed_in_is_ours_if_its_address_is() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        with socket.create_server((HOST, 0)) as sock:
            port = sock.getsockname()[1]
            async with await asyncio.start_server(echo, sock=sock):
                assert await ask(HOST, port, b"passed in") == b"passed in"
                assert loop.endpoints().ours == 3

    libos_asyncio.run(main())


def test_a_runtime_of_the_callers_stays_his() -> None:
    nic, end = memory_link((1, 1), ipv4=(OWN, "10.255.255.2"), ipv4_prefix=24)
    with nic, end, libos.Runtime(nic=nic, adopted=1, poll="block") as runtime:
        for _ in range(2):

            async def main() -> bytes:
                async with await asyncio.start_server(echo, OWN, 7000):
                    return await ask(OWN, 7000, b"again")

            assert libos_asyncio.run(main(), runtime=runtime) == b"again"
            assert not runtime.stopped


def test_a_loop_that_is_closed_drops_its_connections() -> None:
    nic, end = memory_link((1, 1), ipv4=(OWN, "10.255.255.2"), ipv4_prefix=24)
    with nic, end, libos.Runtime(nic=nic, adopted=1, poll="block") as runtime:

        async def main() -> None:
            loop: Any = asyncio.get_running_loop()
            server = await loop.create_server(asyncio.Protocol, OWN, 7000)
            for _ in range(3):
                await loop.create_connection(asyncio.Protocol, OWN, 7000)
            server.close()

        def run_and_collect() -> None:
            libos_asyncio.run(main(), runtime=runtime)
            gc.collect()

        with pytest.warns(ResourceWarning, match="unclosed transport") as warned:
            run_and_collect()
        assert len([w for w in warned if "unclosed transport" in str(w.message)]) == 6
        while runtime.turn():
            pass


def test_what_was_sent_arrives_though_the_loop_is_closed() -> None:
    """As Linux' stack goes on when a process has ended."""
    long, got = os.urandom(60_000), bytearray()
    nic, end = memory_link((1, 1), ipv4=(OWN, "10.255.255.2"), ipv4_prefix=24)
    with nic, end, libos.Runtime(nic=end, poll="block") as peer:
        peer.start()

        def read() -> None:
            with peer.connect_tcp((OWN, 7000), timeout_s=10) as stream:
                while piece := stream.read(timeout_s=10):
                    got.extend(piece)

        reading = threading.Thread(target=read, daemon=True)

        async def main() -> None:
            answered = asyncio.Event()

            async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(long)
                writer.close()
                answered.set()

            async with await asyncio.start_server(answer, OWN, 7000):
                reading.start()
                await answered.wait()

        libos_asyncio.run(main(), nic=nic, poll="block")
        reading.join(60)
        assert not reading.is_alive()
    assert got == long


@pytest.mark.parametrize("options", [{"kthreads": 2, "adopted": 2}, {"kthreads": 1, "adopted": 0}])
def test_a_runtime_that_does_not_fit_is_refused(options: dict[str, int]) -> None:
    nic, end = memory_link((options["kthreads"], 1), ipv4=(OWN, "10.255.255.2"), ipv4_prefix=24)
    with nic, end, libos.Runtime(nic=nic, **options) as runtime, pytest.raises(CorelaneError):
        libos_asyncio.new_event_loop(runtime)


def test_a_runtime_that_is_stopped_under_the_loop_ends_its_connections() -> None:
    async def main() -> BaseException | None:
        loop: Any = asyncio.get_running_loop()
        ended = loop.create_future()

        class Hears(asyncio.Protocol):
            def connection_lost(self, exc: BaseException | None) -> None:
                ended.set_result(exc)

        server = await loop.create_server(asyncio.Protocol, HOST, 0)
        await loop.create_connection(Hears, *server.sockets[0].getsockname())
        await asyncio.to_thread(loop.runtime.stop)
        server.close()
        return await ended

    error = libos_asyncio.run(main())
    assert isinstance(error, OSError)
    assert error.errno == errno.ESHUTDOWN


def test_uvicorn_finds_it_by_its_name() -> None:
    """So does each of its workers."""
    uvicorn = pytest.importorskip("uvicorn", reason="needs uvicorn: pip install 'corelane[bench]'")
    factory = "corelane.libos.asyncio:new_event_loop"
    config = uvicorn.Config("any:application", loop=factory, workers=2, log_config=None)
    assert config.get_loop_factory() is libos_asyncio.new_event_loop


def test_policy() -> None:
    async def main() -> bytes:
        async with await asyncio.start_server(echo, HOST, 0) as server:
            return await ask(*server.sockets[0].getsockname(), b"by policy")

    libos_asyncio.install(poll="block")
    try:
        assert asyncio.run(main()) == b"by policy"
    finally:
        asyncio.set_event_loop_policy(None)


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
        loop: Any = asyncio.get_running_loop()
        async with await asyncio.start_server(echo, "10.99.0.2", 7000):
            await asyncio.gather(*(asyncio.to_thread(client) for _ in range(3)))
            serving = asyncio.to_thread(server)
            task = asyncio.ensure_future(serving)
            assert await ask(*listener.getsockname(), b"z" * 1_000_000) == b"z" * 1_000_000
            await task
            assert loop.endpoints().linux == 0

    before = threading.active_count()
    with nic, listener:
        libos_asyncio.run(main(), nic=nic)
    wait_until(lambda: threading.active_count() <= before, 60, "the threads of clients")
