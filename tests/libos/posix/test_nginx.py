"""Stock nginx on a tap: files, many connections, several workers, reloading. Linux' own clients at the other end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from cltest import wait_until

from .conftest import SERVED, Server

pytestmark = pytest.mark.root

CONFIGURATION = """
daemon off; worker_processes {workers}; pid {folder}/pid; error_log stderr notice; user root;
events {{ worker_connections 512; }}
http {{ access_log off; sendfile {sendfile}; client_body_temp_path {folder}/tmp; proxy_temp_path {folder}/tmp;
fastcgi_temp_path {folder}/tmp; uwsgi_temp_path {folder}/tmp; scgi_temp_path {folder}/tmp;
server {{ listen 0.0.0.0:8080; root {folder}; location = /version {{ return 200 "{version}"; }} }} }}
"""
FAILS = "its sockets wait, and it tries again each second"
WAITS = "another process of this program has the sockets of the dataplane"


def configure(folder: Path, workers: int = 1, sendfile: str = "on", version: str = "") -> Path:
    path = folder / "conf"
    path.write_text(CONFIGURATION.format(folder=folder, workers=workers, sendfile=sendfile, version=version))
    return path


def nginx(serve: Callable[..., Server], configuration: Path) -> Server:
    return serve("nginx", "-e", "stderr", "-c", str(configuration), port=8080)


def version_of(server: Server) -> bytes:
    """What is served as such; nothing while one process follows another."""
    with contextlib.suppress(OSError), contextlib.closing(server.connect()) as client:
        client.sendall(b"GET /version HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: client.recv(65536), b"")).rpartition(b"\r\n")[2]
    return b""


def workers_of(server: Server) -> dict[int, bool]:
    """The processes of its workers, and whether each has the interface."""
    master, found = server.process.pid, {}
    for pid in map(int, Path(f"/proc/{master}/task/{master}/children").read_text().split()):
        with contextlib.suppress(OSError):
            found[pid] = any(leads_to(fd) == "/dev/net/tun" for fd in Path(f"/proc/{pid}/fd").iterdir())
    return found


def leads_to(descriptor: Path) -> str:
    """Of another process, which may close it meanwhile."""
    with contextlib.suppress(OSError):
        return os.readlink(descriptor)
    return ""


def wait_for_version(server: Server, version: bytes) -> None:
    wait_until(lambda: version_of(server) == version, 60, server.log.read_text)


def test_a_worker_without_an_interface_waits_for_it(serve: Callable[..., Server], tmp_path: Path) -> None:
    """It says so once and does not end, as its master would start another one in its place, and so on."""
    server = serve("nginx", "-e", "stderr", "-c", str(configure(tmp_path, version="one")), port=8080)
    (serving,) = workers_of(server)
    server.process.send_signal(signal.SIGSTOP)
    os.kill(serving, signal.SIGKILL)
    wait_until(lambda: Path(f"/proc/{serving}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z")
    in_the_way = ["ip", "link", "add", "clpx", "type", "veth", "peer", "name", "clpy"]
    wait_until(lambda: server.space.run(in_the_way).returncode == 0)
    server.process.send_signal(signal.SIGCONT)
    wait_until(lambda: FAILS in server.log.read_text(), 60, server.log.read_text)
    (waiting,) = workers_of(server)
    with pytest.raises(OSError, match="unreachable"):
        server.connect()
    server.space.ip("link", "delete", "clpx")
    wait_for_version(server, b"one")
    assert list(workers_of(server)) == [waiting]
    assert server.log.read_text().count(FAILS) == 1
    server.process.send_signal(signal.SIGQUIT)
    assert server.process.wait(60) == 0


@pytest.mark.parametrize("sendfile", ["on", "off"])
def test_files_by_one_connection(serve: Callable[..., Server], tmp_path: Path, sendfile: str) -> None:
    """The master binds, and its worker, which it forks then, serves."""
    long = os.urandom(300_000)
    (tmp_path / "long").write_bytes(long)
    (tmp_path / "short").write_bytes(b"short")
    server = nginx(serve, configure(tmp_path, sendfile=sendfile))
    urls = [f"http://{SERVED}:8080/{name}" for name in ("long", "short")]
    files = [tmp_path / "0", tmp_path / "1"]
    server.run("curl", "-sS", "--fail", "-o", str(files[0]), urls[0], "-o", str(files[1]), urls[1])
    assert files[0].read_bytes() == long
    assert files[1].read_bytes() == b"short"
    server.process.send_signal(signal.SIGQUIT)
    assert server.process.wait(60) == 0


def test_many_connections_that_are_kept(serve: Callable[..., Server], tmp_path: Path) -> None:
    (tmp_path / "page").write_bytes(b"page" * 1000)
    server = nginx(serve, configure(tmp_path))
    said = server.run("wrk", "-t", "1", "-c", "50", "-d", "1", f"http://{SERVED}:8080/page")
    assert "Socket errors" not in said, said
    assert "Non-2xx" not in said, said
    requests = re.search(r"(\d+) requests in", said)
    assert requests is not None, said
    assert int(requests[1]) >= 50


def test_a_reload_is_another_worker(serve: Callable[..., Server], tmp_path: Path) -> None:
    """The new one has the interface when the old one has ended."""
    server = nginx(serve, configure(tmp_path, version="one"))
    wait_for_version(server, b"one")
    (before,) = workers_of(server)
    for version in ("two", "three"):
        configure(tmp_path, version=version)
        server.process.send_signal(signal.SIGHUP)
        wait_for_version(server, version.encode())
    assert before not in workers_of(server)
    server.process.send_signal(signal.SIGQUIT)
    assert server.process.wait(60) == 0


def test_of_two_workers_one_serves_and_the_other_follows(serve: Callable[..., Server], tmp_path: Path) -> None:
    """The master is stopped meanwhile: a worker that it started at once could be first."""
    server = nginx(serve, configure(tmp_path, workers=2, version="one"))
    wait_for_version(server, b"one")
    wait_until(lambda: WAITS in server.log.read_text())
    first = workers_of(server)
    assert sorted(first.values()) == [False, True]
    serving, waiting = sorted(first, key=first.__getitem__, reverse=True)
    server.process.send_signal(signal.SIGSTOP)
    os.kill(serving, signal.SIGKILL)
    wait_for_version(server, b"one")
    assert server.log.read_text().count(WAITS) == 1
    server.process.send_signal(signal.SIGCONT)
    wait_until(lambda: server.log.read_text().count(WAITS) == 2, 60, server.log.read_text)
    after = workers_of(server)
    assert after.keys() & first.keys() == {waiting}
    assert after[waiting]
    assert sorted(after.values()) == [False, True]
    server.process.send_signal(signal.SIGQUIT)
    assert server.process.wait(60) == 0
