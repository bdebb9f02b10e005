"""TCP against what people run: Python's sockets and TLS, curl, wrk, iperf3, nc and socat.

The peer of each is Linux' TCP, over a tap and over AF_XDP on a veth pair. Both sides open, both send; every byte is
compared by a hash. `make soak` runs the long forms: 1 GiB, and 10 000 connections at once.
"""

from __future__ import annotations

import ctypes
import json
import re
import select
import socket
import ssl
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from cltest import soak, wait_until

pytestmark = pytest.mark.root

MIB = 1 << 20


@pytest.fixture
def size(ours: Any) -> int:
    """Bytes of a long transfer."""
    return soak.examples(64 * MIB if ours.nic == "tap" else 8 * MIB, 1 << 30)


def blocks(ours: Any, size: int) -> Iterator[bytes]:
    for start in range(0, size, MIB):
        yield ours.pattern(start, min(start + MIB, size))


def crc_of(parts: Iterator[bytes]) -> int:
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc


def received(s: socket.socket) -> Iterator[bytes]:
    while part := s.recv(MIB):
        yield part


def take(s: socket.socket, size: int) -> bytes:
    """So many bytes."""
    parts = []
    while size:
        parts.append(s.recv(size))
        assert parts[-1], f"the end came, and {size} bytes did not"
        size -= len(parts[-1])
    return b"".join(parts)


def send_all(ours: Any, s: socket.socket, size: int) -> int:
    """Send the pattern and a FIN. Returns its CRC-32."""
    crc = 0
    for block in blocks(ours, size):
        s.sendall(block)
        crc = zlib.crc32(block, crc)
    s.shutdown(socket.SHUT_WR)
    return crc


def read_report(s: socket.socket) -> tuple[int, int]:
    """What a sink says: bytes and CRC-32."""
    size, crc = b"".join(received(s)).split()
    return int(size), int(crc, 16)


@pytest.mark.soak(short=True, takes_s=20)
def test_linux_connects_and_sends(ours: Any, size: int) -> None:
    with ours.socket(ours.address("sink")) as s:
        since = time.monotonic()
        crc = send_all(ours, s, size)
        assert read_report(s) == (size, crc)
        ours.rate("Linux sends", size, since)


@pytest.mark.soak(short=True, takes_s=20)
def test_linux_connects_and_takes(ours: Any, size: int) -> None:
    with ours.socket(ours.address("source")) as s:
        since = time.monotonic()
        s.sendall(b"%d\n" % size)
        crc = crc_of(received(s))
        ours.rate("Linux takes", size, since)
    assert crc == crc_of(blocks(ours, size))


@pytest.mark.soak(short=True, takes_s=20)
def test_we_connect_and_send(ours: Any, size: int) -> None:
    with ours.socket(listens=1) as listener:
        ours.open("source", listener.getsockname()[1], size=size)
        with listener.accept()[0] as s:
            s.settimeout(120.0)
            crc = crc_of(received(s))
    assert crc == crc_of(blocks(ours, size))
    assert ours.result()[:2] == (0, size)


@pytest.mark.soak(short=True, takes_s=20)
def test_we_connect_and_take(ours: Any, size: int) -> None:
    with ours.socket(listens=1) as listener:
        ours.open("sink", listener.getsockname()[1])
        with listener.accept()[0] as s:
            s.settimeout(120.0)
            crc = send_all(ours, s, size)
            assert read_report(s) == (size, crc)
    assert ours.result() == (0, size, crc)


def polled(sockets: list[socket.socket], what: int) -> Iterator[socket.socket]:
    """Each of them once, as it becomes ready."""
    by_fd = {s.fileno(): s for s in sockets}
    with closing(select.epoll()) as poll:
        for fd in by_fd:
            poll.register(fd, what | select.EPOLLONESHOT)
        left = len(sockets)
        while left:
            ready = poll.poll(60.0)
            assert ready, f"{left} of {len(sockets)} do not become ready"
            left -= len(ready)
            yield from (by_fd[fd] for fd, _ in ready)


@pytest.fixture
def many(ours: Any) -> int:
    count = soak.examples(200, 10_000)
    ours.descriptors(count)
    return count


@pytest.mark.soak(short=True, takes_s=30)
def test_many_that_connect_to_us_live_at_once(ours: Any, many: int) -> None:
    sockets = [ours.socket(ours.address("echo")) for _ in range(many)]
    wait_until(lambda: ours.alive == many, 60.0, lambda: f"{many} to be open, {ours.alive} are")
    for _ in range(2):
        for i, s in enumerate(sockets):
            s.sendall(b"%08d" % i * 10)
        numbers = {s: i for i, s in enumerate(sockets)}
        for s in polled(sockets, select.EPOLLIN):
            assert take(s, 80) == b"%08d" % numbers[s] * 10
    for s in sockets:
        s.shutdown(socket.SHUT_WR)
    for s in polled(sockets, select.EPOLLIN):
        assert s.recv(1) == b""
        s.close()
    wait_until(lambda: ours.alive == 0, 60.0, lambda: f"all to be over, {ours.alive} are not")


@pytest.mark.soak(short=True, takes_s=30)
def test_many_that_we_open_live_at_once(ours: Any, many: int) -> None:
    ours.runtime.add_neighbour(ours.linux, ours.mac)  # else most SYNs wait for a time-out
    with ours.socket(listens=4096) as listener:
        ours.open("echo", listener.getsockname()[1], many)
        sockets = [listener.accept()[0] for _ in range(many)]
    wait_until(lambda: ours.alive == many, 60.0, lambda: f"{many} to be open, {ours.alive} are")
    for i, s in enumerate(sockets):
        s.settimeout(60.0)
        s.sendall(b"%08d" % i * 10)
        s.shutdown(socket.SHUT_WR)
    numbers = {s: i for i, s in enumerate(sockets)}
    for s in polled(sockets, select.EPOLLIN):
        assert b"".join(received(s)) == b"%08d" % numbers[s] * 10
        s.close()
    assert {ours.result(i)[0] for i in range(many)} == {0}


# TLS: whoever loses, doubles or changes a byte breaks a record's authentication.


def carry(bio: ssl.MemoryBIO, s: socket.socket, to: ssl.MemoryBIO) -> None:
    """Take what waits in `bio` by way of an echo to `to`."""
    data = bio.read()
    if data:
        s.sendall(data)
        to.write(take(s, len(data)))


def test_tls_passes_through_us(ours: Any, certificate: tuple[Path, Path], seed: int) -> None:
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=certificate[0])
    serving.load_cert_chain(*certificate)
    asking.check_hostname = False
    to_server, to_client, from_server, from_client = (ssl.MemoryBIO() for _ in range(4))
    server = serving.wrap_bio(to_server, from_server, server_side=True)
    client = asking.wrap_bio(to_client, from_client)
    with ours.socket(ours.address("echo")) as there, ours.socket(ours.address("echo")) as back:

        def step(call: Any, *args: Any) -> Any:
            """What a call returns; None: it wants more first."""
            result = None
            with suppress(ssl.SSLWantReadError):
                result = call(*args)
            carry(from_client, there, to_server)
            carry(from_server, back, to_client)
            return result

        while client.version() is None or server.version() is None or step(server.do_handshake):
            step(client.do_handshake)
            step(server.do_handshake)
        for block in blocks(ours, MIB // 2):
            for at in range(0, len(block), 16384):
                record = block[at : at + 16384]
                assert step(client.write, record) == len(record)
                got = b""
                while len(got) < len(record):
                    got += step(server.read, len(record)) or b""
                assert got == record
                step(server.write, got[::-1])
                assert step(client.read, len(record)) == record[::-1]


def test_curl_fetches(ours: Any) -> None:
    body = bytes(ord("a") + i % 26 for i in range(1024))
    # Many on one connection, then each on its own.
    assert ours.run(["curl", "-sS", f"http://{ours.address('http')[0]}/[1-50]"]) == body * 50
    accepted = ours.counts().accepted
    assert accepted == 1
    url = f"http://{ours.address('http')[0]}/[1-20]"
    assert ours.run(["curl", "-sS", "-H", "Connection: close", url, "--no-keepalive"]) == body * 20


# wrk ends in the middle of answers, by a reset of each connection, and nobody sends a reset again. Those whose reset is
# lost, and that had sent all, stay until keep-alive asks: so many at most as resets are missing.
@pytest.mark.soak(short=True, takes_s=30)
def test_wrk_loads(ours: Any) -> None:
    seconds, connections = soak.examples(1, 20), soak.examples(20, 1000)
    ours.descriptors(connections)
    url = f"http://{ours.address('http')[0]}/"
    sent, taken, before = ours.linux_resets(), ours.counts().resets_in, ours.lost()
    out = ours.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", url]).decode()
    print(out)
    assert "Socket errors" not in out
    assert "Non-2xx" not in out
    found = re.search(r"(\d+) requests in", out)
    assert found
    assert int(found[1]) >= connections
    assert ours.counts().accepted >= connections

    def resets_missing() -> int:
        return (ours.linux_resets() - sent) - (ours.counts().resets_in - taken)

    def told() -> str:
        lost = {where: count - before[where] for where, count in ours.lost().items()}
        return f"{ours.alive} connections of wrk's live, {resets_missing()} resets are missing; frames lost: {lost}"

    # A connection whose reset came lives on until its user-level thread runs: as long as that may take.
    wait_until(lambda: ours.alive <= max(0, resets_missing()), 60.0, told)
    print(told())
    wait_until(lambda: ours.alive == 0, 60.0, told)
    ours.forget_resets()


@pytest.fixture(scope="module")
def iperf3(services: ctypes.CDLL, c_library: Callable[..., Path]) -> ctypes.CDLL:
    """c/iperf3.c, after the library that it calls."""
    return ctypes.CDLL(str(c_library("tests/libos/net/tcp/c/iperf3.c")))


@pytest.mark.soak(short=True, takes_s=40)
@pytest.mark.parametrize("options", [["-P3"], ["-R"]], ids=["three up", "one down"])
def test_iperf3_measures(ours: Any, iperf3: ctypes.CDLL, options: list[str]) -> None:
    long, before = ["-t", "10"] if soak.SOAKS else ["-n", "16M"], iperf3.iperf3_done()
    assert iperf3.iperf3_listen(ours.rt, 5201) == 0
    argv = ["iperf3", "-c", ours.address("echo")[0], "-J", *long, *options]
    end = json.loads(ours.run(argv))["end"]
    print(f"{ours.nic}: iperf3 {options[0]}: {end['sum_received']['bits_per_second'] / 1e6:.0f} Mb/s")
    assert MIB < end["sum_received"]["bytes"] <= end["sum_sent"]["bytes"]
    wait_until(lambda: iperf3.iperf3_done() == before + 1, 60.0, "the end of the test to be told")


@pytest.mark.parametrize("program", ["nc", "socat"])
def test_a_program_sends_and_takes(ours: Any, program: str) -> None:
    data = ours.pattern(0, 3 * MIB)
    ip, port = ours.address("echo")
    argv = ["nc", "-N", ip, str(port)] if program == "nc" else ["socat", "-t60", "-", f"TCP:{ip}:{port}"]
    assert zlib.crc32(ours.run(argv, stdin=data)) == zlib.crc32(data)


@pytest.mark.parametrize("program", ["nc", "socat"])
def test_a_program_listens(ours: Any, program: str) -> None:
    ip, port = ours.linux, 7777
    argv = ["nc", "-N", "-l", ip, str(port)] if program == "nc" else ["socat", "-t60", f"TCP-LISTEN:{port}", "-"]
    with ours.start(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            wait_until(lambda: ours.listens(port), 60.0, f"{program} to listen")
            ours.open("echo", port)
            data = ours.pattern(0, 3 * MIB)
            back = process.communicate(data, timeout=60.0)[0]
        finally:
            process.kill()
    assert zlib.crc32(back) == zlib.crc32(data)
    assert ours.result()[0] == 0


def test_both_sides_send_at_once(ours: Any) -> None:
    """What comes back has to be read while more is sent: windows fill, and open again."""
    data = ours.pattern(0, 4 * MIB)
    with ours.socket(ours.address("echo")) as s:
        sender = threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
        sender.start()
        time.sleep(0.05)  # the buffers of both sides are full now, as a rule
        crc = crc_of(received(s))
        sender.join()
    assert crc == zlib.crc32(data)
