"""TCP in the middle: a relay of ours between a program and its server, both on Linux. It plays both roles at once.

iperf3 and TLS have protocols of their own, which notice what is lost, late or changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cltest import soak, wait_until

from corelane.drivers.nic.nic import ipv4_to_int

pytestmark = pytest.mark.root

MIB = 1 << 20
PORT, SERVER_PORT = 5201, 5202


class Relay:
    """What comes to PORT of ours goes to a port of Linux."""

    def __init__(self, ours: Any, library: ctypes.CDLL, to_port: int) -> None:
        self.ours, self._library = ours, library
        assert library.relay_begin(ours.rt, PORT, ipv4_to_int(ours.linux), to_port) == 0

    def expect(self, connections: int, resets: bool = False) -> None:
        """So many went through to both their ends. resets: the programs may have reset them."""
        wait_until(lambda: self._library.relay_done() == connections, 60.0, "all that were relayed to end")
        assert self._library.relay_failed() == 0
        assert resets or self._library.relay_reset() == 0


@pytest.fixture(scope="module")
def library(services: ctypes.CDLL, c_library: Callable[..., Path]) -> ctypes.CDLL:
    made = ctypes.CDLL(str(c_library("tests/libos/net/tcp/c/relay.c")))
    for name in ("relay_done", "relay_reset", "relay_failed"):
        getattr(made, name).restype = ctypes.c_uint64
    return made


@contextlib.contextmanager
def server(ours: Any, argv: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program that listens at SERVER_PORT."""
    with ours.start(argv, **options) as process:
        try:
            wait_until(lambda: ours.listens(SERVER_PORT), 60.0, f"{argv[0]} to listen")
            yield process
        finally:
            process.kill()


# Options, and how many connections a test with them has.
IPERF3 = {"up": ([], 2), "down": (["-R"], 2), "both": (["--bidir"], 3), "eight": (["-P", "8"], 9)}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.soak(short=kind in ("both", "eight"), takes_s=15)) for kind in IPERF3],
)
def test_iperf3_measures_through_us(ours: Any, library: ctypes.CDLL, kind: str, request: pytest.FixtureRequest) -> None:
    if kind == "both" and request.node.callspec.params["ours"][1] > 1:
        # Swapped, both ends send over one of them and read from the other, for ever.
        pytest.skip("iperf3 tells its two ways apart by the order of connections, which two kthreads do not keep")
    options, connections = IPERF3[kind]
    long = ["-t", "10"] if soak.SOAKS else ["-n", "16M"]
    relay = Relay(ours, library, SERVER_PORT)
    with server(ours, ["iperf3", "-s", "-1", "-p", str(SERVER_PORT)], stdout=subprocess.DEVNULL):
        argv = ["iperf3", "-c", ours.address("echo")[0], "-p", str(PORT), "-J", *long, *options]
        result = json.loads(ours.run(argv))
    assert "error" not in result
    for name in ("sum_received", "sum_received_bidir_reverse") if kind == "both" else ("sum_received",):
        print(f"{ours.nic}: iperf3, {kind}: {name} {result['end'][name]['bits_per_second'] / 1e6:.0f} Mb/s")
        assert result["end"][name]["bytes"] > MIB
    relay.expect(connections, resets=True)  # its sender ends in the middle of what it sends


def echo(raw: Any, context: ssl.SSLContext) -> None:
    """Be a TLS server of one connection, up to the client's close-notify, and answer that."""
    with context.wrap_socket(raw, server_side=True) as s:
        while part := s.recv(65536):
            s.sendall(part)
        s.unwrap().close()


def test_tls_of_python_with_a_server_behind_us(ours: Any, library: ctypes.CDLL, certificate: tuple[Path, Path]) -> None:
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=certificate[0])
    serving.load_cert_chain(*certificate)
    asking.check_hostname = False
    data = ours.pattern(0, soak.examples(MIB, 256 * MIB))
    with ours.socket(listens=1) as listener:
        relay = Relay(ours, library, listener.getsockname()[1])
        raw = ours.socket((ours.address("echo")[0], PORT))
        accepted = listener.accept()[0]
        accepted.settimeout(60.0)
        answers = threading.Thread(target=echo, args=(accepted, serving))
        answers.start()
        with asking.wrap_socket(raw) as client:
            for at in range(0, len(data), 65536):
                part, back = data[at : at + 65536], b""
                client.sendall(part)
                while len(back) < len(part):
                    got = client.recv(65536)
                    assert got
                    back += got
                assert back == part
            client.unwrap().close()
        answers.join()
    relay.expect(1)


def test_openssl_sends_through_us(ours: Any, library: ctypes.CDLL, certificate: tuple[Path, Path]) -> None:
    """s_client to s_server, and back what s_server is given to say."""
    up, down = ours.pattern(0, 2 * MIB), ours.pattern(MIB, 2 * MIB)
    relay = Relay(ours, library, SERVER_PORT)
    serve = ["openssl", "s_server", "-quiet", "-accept", str(SERVER_PORT), "-naccept", "1"]
    serve += ["-cert", str(certificate[0]), "-key", str(certificate[1])]
    ask = ["openssl", "s_client", "-quiet", "-nocommands", "-connect", f"{ours.address('echo')[0]}:{PORT}"]
    ask += ["-verify_return_error", "-CAfile", str(certificate[0])]
    came: dict[str, bytes] = {}

    def says(process: Any, data: bytes) -> None:
        process.stdin.write(data)
        process.stdin.flush()

    def hears(name: str, process: Any, size: int) -> None:
        came[name] = process.stdout.read(size)

    with (
        server(ours, serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as serving,
        ours.start(ask, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as asking,
    ):
        todo = [(says, asking, up), (says, serving, down), (hears, "up", serving, len(up))]
        todo += [(hears, "down", asking, len(down))]
        threads = [threading.Thread(target=what, args=args) for what, *args in todo]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
        asking.kill()
    assert came == {"up": up, "down": down}
    relay.expect(1, resets=True)  # both were killed


def test_curl_fetches_by_tls_through_us(
    ours: Any, library: ctypes.CDLL, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    data = ours.pattern(0, 2 * MIB)
    (tmp_path / "file").write_bytes(data)
    relay = Relay(ours, library, SERVER_PORT)
    serve = ["openssl", "s_server", "-WWW", "-quiet", "-accept", str(SERVER_PORT)]
    serve += ["-cert", str(certificate[0]), "-key", str(certificate[1])]
    ip = ours.address("echo")[0]
    ask = ["curl", "-sS", "--cacert", str(certificate[0]), "--connect-to", f"corelane.test:443:{ip}:{PORT}"]
    with server(ours, serve, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL):
        got = ours.run([*ask, *["https://corelane.test/file"] * 3])
    assert got == data * 3
    relay.expect(3, resets=True)
