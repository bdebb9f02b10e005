"""Stock servers, and an epoll server in C, on a tap: Linux' own clients at the other end."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cltest import soak, wait_until

from corelane.cli import stat

from .conftest import SERVED as OURS
from .conftest import Server

pytestmark = pytest.mark.root


@pytest.mark.parametrize(("threads", "how", "kthreads"), [(1, "each", 1), (3, "each", 2), (3, "shared", 2)])
def test_an_epoll_server(
    stock: Callable[[str], Path], serve: Callable[..., Server], threads: int, how: str, kthreads: int
) -> None:
    server = serve(str(stock("echo")), "7000", str(threads), how, port=7000, kthreads=kthreads)
    clients = [server.connect() for _ in range(20)]
    for i, client in enumerate(clients):
        client.sendall(bytes([i]) * (1 + 997 * i))
    for i, client in enumerate(clients):
        client.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda c=client: c.recv(65536), b"")) == bytes([i]) * (1 + 997 * i)
        client.close()
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    counted = int(server.log.read_text().split()[-1])
    assert counted >= 21, "the clients, and who asked whether it serves"


def stays(server: Server, request: bytes, answer: bytes) -> None:
    """What comes for connections is told of at the kthreads of those who poll them, as a rule: siblings take what waits
    while such a thread does something else, or has no CPU. Where nothing is handed over it is as many as by chance."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(contextlib.closing(server.connect())) for _ in range(12)]
        for _ in range(40):
            for client in clients:
                client.sendall(request)
            for client in clients:
                assert client.recv(100).startswith(answer)
        counts = stat.read(server.process.pid)
    assert counts is not None
    assert counts["told"]["home"] > 3 * counts["told"]["away"], counts["told"]
    assert counts["told"]["home"] + counts["told"]["away"] >= 12 * 35, counts


def test_connections_of_an_epoll_server_stay(stock: Callable[[str], Path], serve: Callable[..., Server]) -> None:
    stays(serve(str(stock("echo")), "7000", "3", "each", port=7000, kthreads=3), b"question", b"question")


def test_connections_of_memcached_stay(serve: Callable[..., Server]) -> None:
    stays(memcached(serve, 4, 4), b"version\r\n", b"VERSION ")


def test_connections_end_with_the_program(stock: Callable[[str], Path], serve: Callable[..., Server]) -> None:
    server = serve(str(stock("echo")), "7000", "2", "each", port=7000)
    with contextlib.closing(server.connect()) as client:
        client.sendall(b"x")
        assert client.recv(1) == b"x"
        server.process.send_signal(signal.SIGTERM)
        assert client.recv(1) == b""
    assert server.process.wait(60) == 0


def test_what_stdio_holds_leaves_at_the_end(stock: Callable[[str], Path], serve: Callable[..., Server]) -> None:
    server = serve(str(stock("streams")), "serve", "7000", port=7000)
    with contextlib.closing(server.connect()) as client:
        client.sendall(b"a line\n")
        assert b"".join(iter(lambda: client.recv(100), b"")) == b"it was a line\n"
    assert server.process.wait(60) == 0


def test_other_threads_do_not_see_the_end(stock: Callable[[str], Path], serve: Callable[..., Server]) -> None:
    """They poll, accept and read while exit closes their sockets, and end with the process as by Linux."""
    for threads in (1, 3, 3, 3):
        server = serve(str(stock("echo")), "7000", str(threads), "shared", port=7000, kthreads=2)
        clients = [server.connect() for _ in range(10)]
        for client in clients:
            client.sendall(bytes(20_000))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0, server.log.read_text()
        for client in clients:
            client.close()


def memcached(serve: Callable[..., Server], threads: int, kthreads: int) -> Server:
    return serve("memcached", "-u", "root", "-t", str(threads), "-l", "0.0.0.0", port=11211, kthreads=kthreads)


def test_memcached(serve: Callable[..., Server]) -> None:
    server = memcached(serve, 2, 2)
    assert "All tests passed" in server.run("memccapable", "-h", OURS, "-a")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    assert server.log.read_text().replace("Signal handled: Terminated.\n", "") == ""


@pytest.mark.soak(takes_s=6)
@pytest.mark.parametrize(("threads", "kthreads"), [(1, 1), (2, 1), (4, 2), (4, 4)])
def test_memcached_in_all(serve: Callable[..., Server], threads: int, kthreads: int) -> None:
    server = memcached(serve, threads, kthreads)
    assert "All tests passed" in server.run("memccapable", "-h", OURS)


@pytest.mark.soak(short=True, takes_s=6)
def test_ten_thousand_connections(serve: Callable[..., Server]) -> None:
    """The short form: a tenth of them."""
    connections = soak.examples(1000, 10_000)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if most < connections + 1000:
        pytest.skip(f"needs {connections + 1000} open files, and may have {most}: ulimit -n {connections + 1000}")
    command = ("memcached", "-u", "root", "-t", "2", "-c", "10500", "-l", "0.0.0.0")
    server = serve(*command, port=11211, kthreads=2)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(contextlib.closing(server.connect())) for _ in range(connections)]
        for client in clients:
            client.sendall(b"version\r\n")
        assert all(client.recv(100).startswith(b"VERSION ") for client in clients)


def test_redis(serve: Callable[..., Server], tmp_path: Path) -> None:
    command = ("redis-server", "--protected-mode", "no", "--save", "", "--dir", str(tmp_path))
    server = serve(*command, port=6379)
    ask = ("-h", OURS)
    assert server.run("redis-cli", *ask, "set", "key", "value") == "OK\n"
    assert server.run("redis-cli", *ask, "get", "key") == "value\n"
    rates = server.run("redis-benchmark", *ask, "-n", "2000", "-c", "20", "-t", "set,get,lpush,lrange_100", "--csv")
    assert len(rates.splitlines()) >= 5
    server.run("redis-cli", *ask, "bgsave")
    wait_until(lambda: "rdb_bgsave_in_progress:0" in server.run("redis-cli", *ask, "info", "persistence"))
    assert "rdb_last_bgsave_status:ok" in server.run("redis-cli", *ask, "info", "persistence")
    assert (tmp_path / "dump.rdb").exists()
    with contextlib.closing(server.connect()) as client:
        client.sendall(b"SHUTDOWN NOSAVE\r\n")
        assert client.recv(1) == b""
    assert server.process.wait(60) == 0


def test_redis_with_threads_for_its_connections(serve: Callable[..., Server], tmp_path: Path) -> None:
    """By its Python client: values, a pipeline, and messages to who subscribes."""
    redis = pytest.importorskip("redis")
    words = ("--protected-mode", "no", "--save", "", "--io-threads", "3", "--io-threads-do-reads", "yes")
    server = serve("redis-server", *words, "--dir", str(tmp_path), port=6379, kthreads=2)
    server.run("redis-benchmark", "-h", OURS, "-n", "2000", "-c", "30", "-P", "4", "-t", "set,get", "--csv")
    with server.space.entered(), redis.Redis(OURS) as client, client.pubsub() as listens:
        listens.subscribe("news")
        assert listens.get_message(timeout=30)["type"] == "subscribe"
        assert client.set("key", b"x" * 100_000)
        assert client.get("key") == b"x" * 100_000
        with client.pipeline(transaction=True) as together:
            for i in range(500):
                together.incrby("sum", i)
            assert together.execute()[-1] == sum(range(500))
        assert client.publish("news", "one") == 1
        assert listens.get_message(timeout=30)["data"] == b"one"


LIGHTTPD = """
server.document-root = "{folder}"
server.bind = "0.0.0.0"
server.port = 8080
server.max-keep-alive-requests = 1000
"""


def test_lighttpd(serve: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "conf").write_text(LIGHTTPD.format(folder=tmp_path))
    (tmp_path / "page").write_bytes(b"page" * 100_000)
    server = serve("lighttpd", "-D", "-f", str(tmp_path / "conf"), port=8080)
    url = f"http://{OURS}:8080/page"
    assert server.run("curl", "-sS", "--fail", url, url) == "page" * 200_000
    said = server.run("wrk", "-t", "1", "-c", "20", "-d", "1", url)
    assert "Socket errors" not in said, said
    assert "Non-2xx" not in said, said
    server.process.send_signal(signal.SIGINT)  # gracefully: with connections open a SIGTERM is status 1, on Linux, too
    assert server.process.wait(60) == 0, server.log.read_text()


def test_pythons_http_server(serve: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(b"page" * 10_000)
    server = serve("/usr/bin/python3", "-m", "http.server", "-d", str(tmp_path), "8000", port=8000)
    assert server.run("curl", "-sS", f"http://{OURS}:8000/page") == "page" * 10_000


ASYNCIO = """
import asyncio

async def talk(reader, writer):
    while line := await reader.readline():
        writer.write(line.upper())
        await writer.drain()
    writer.close()

async def main():
    async with await asyncio.start_server(talk, "0.0.0.0", 8001) as server:
        await server.serve_forever()

asyncio.run(main())
"""


def test_a_stock_asyncio_server(serve: Callable[..., Server]) -> None:
    server = serve("/usr/bin/python3", "-c", ASYNCIO, port=8001)
    with contextlib.closing(server.connect()) as client:
        client.sendall(b"ab\ncd\n")
        client.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: client.recv(100), b"")) == b"AB\nCD\n"


def ask_by_udp(client: socket.socket, message: bytes, server: Server, port: int, late: bytes = b"") -> bytes:
    """The answer; a datagram may be lost while the neighbour is not known yet. late: the answer to what was asked
    before, which comes twice if that was asked twice."""
    for _ in range(10):
        client.sendto(message, (OURS, port))
        with contextlib.suppress(TimeoutError):
            while (answer := client.recv(2000)) == late:
                pass
            return answer
    raise AssertionError(f"no answer from port {port}: {server.log.read_text()}")


@pytest.fixture
def datagrams() -> Iterator[Callable[[Server], socket.socket]]:
    """A datagram socket of Linux' in a server's namespace."""
    with contextlib.ExitStack() as stack:

        def make(server: Server) -> socket.socket:
            with server.space.entered():
                s = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            s.settimeout(2)
            return s

        yield make


def test_memcached_by_udp(serve: Callable[..., Server], datagrams: Callable[[Server], socket.socket]) -> None:
    server = serve("memcached", "-u", "root", "-t", "2", "-l", "0.0.0.0", "-U", "11211", port=11211, kthreads=2)
    clients = [datagrams(server) for _ in range(4)]
    for number, client in enumerate(clients):
        frame = struct.pack("!HHHH", number, 0, 1, 0)  # protocol.txt: request, sequence, datagrams, reserved
        value = bytes([65 + number]) * 300
        message = frame + b"set k%d 0 0 300\r\n%s\r\n" % (number, value)
        stored = ask_by_udp(client, message, server, 11211)
        assert stored == frame + b"STORED\r\n"
        answer = ask_by_udp(client, frame + b"get k%d\r\n" % number, server, 11211, late=stored)
        assert answer == frame + b"VALUE k%d 0 300\r\n%s\r\nEND\r\n" % (number, value)


UDP_SERVER = """
import asyncio, socket, socketserver, threading

class Upper(socketserver.BaseRequestHandler):
    def handle(self):
        data, s = self.request
        s.sendto(data.upper(), self.client_address)

class Backwards(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport
    def datagram_received(self, data, address):
        self.transport.sendto(data[::-1], address)

async def main():
    await asyncio.get_running_loop().create_datagram_endpoint(Backwards, ("0.0.0.0", 8003))
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "0.0.0.0", 8002)
    await server.serve_forever()

upper = socketserver.ThreadingUDPServer(("0.0.0.0", 8002), Upper)
threading.Thread(target=upper.serve_forever, daemon=True).start()
asyncio.run(main())
"""


def test_stock_datagram_servers(serve: Callable[..., Server], datagrams: Callable[[Server], socket.socket]) -> None:
    """socketserver waits by select, asyncio by epoll."""
    server = serve("/usr/bin/python3", "-c", UDP_SERVER, port=8002, kthreads=2)
    client = datagrams(server)
    for _ in range(3):
        assert ask_by_udp(client, b"question", server, 8002, late=b"noitseuq") == b"QUESTION"
        assert ask_by_udp(client, b"question", server, 8003, late=b"QUESTION") == b"noitseuq"
    client.connect((OURS, 8004))
    client.send(b"nobody has this port")
    with pytest.raises(ConnectionRefusedError):
        client.recv(1)


def iperf3(serve: Callable[..., Server]) -> Server:
    """A server that waits for its first client. Who asked whether it serves was one for it, and after each it listens
    anew: who came before that is reset."""
    server = serve("iperf3", "-s", "-B", "0.0.0.0", "--forceflush", port=5201)
    wait_until(lambda: server.log.read_text().count("Server listening") > 1, 60)
    return server


def test_iperf3_by_udp(serve: Callable[..., Server]) -> None:
    server = iperf3(serve)
    report = json.loads(server.run("iperf3", "-c", OURS, "-u", "-n", "1M", "-b", "20M", "-J"))
    assert "sum" in report["end"], (report, server.log.read_text())
    assert report["end"]["sum"]["bytes"] >= 1 << 20
    assert report["end"]["sum"]["lost_percent"] < 100


def test_iperf3(serve: Callable[..., Server]) -> None:
    server = iperf3(serve)
    report = json.loads(server.run("iperf3", "-c", OURS, "-n", "10M", "-J"))
    assert report["end"]["sum_sent"]["bytes"] >= 10 << 20
    assert report["end"]["sum_received"]["bytes"] > 1 << 20, "what was under way at its end it does not count"
