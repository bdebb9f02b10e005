"""HTTP against what people run: curl, wrk, ab, nginx in front of it, Python's clients."""

from __future__ import annotations

import http.client
import re
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest
from cltest import soak, wait_until
from httphost import LARGE, TEXT
from httpnet import LINUX, Served, needs, served_on

pytestmark = pytest.mark.root

LARGE_BYTES = bytes(range(256)) * (LARGE // 256)


def test_curl(served: Served, tmp_path: Path) -> None:
    url = served.url
    assert served.run(["curl", "-sSf", url("/text.txt"), url("/text.txt"), url("/sub/")]) == 2 * TEXT + b"<p>sub"
    assert served.stats()["opened"] == 1, "one connection for all of them"
    assert served.run(["curl", "-sSfL", url("/sub")]) == b"<p>sub"
    assert served.run(["curl", "-sSf", "-r", "5-9", url("/text.txt")]) == TEXT[5:10]
    assert served.run(["curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-I", url("/text.txt")]) == b"200"
    assert served.run(["curl", "-sS", "--http2", url("/text.txt")]) == TEXT, "an upgrade that is not done"
    assert served.run(["curl", "-sS", "-d", "a=b", "-o", "/dev/null", "-w", "%{http_code}", url("/text.txt")]) == b"405"
    body = tmp_path / "body"
    body.write_bytes(b"x" * 100_000)
    chunked = ["curl", "-sS", "-H", "Transfer-Encoding: chunked", "-T", str(body), "-o", "/dev/null"]
    assert served.run([*chunked, "-w", "%{http_code}", url("/text.txt")]) == b"405"
    assert served.run(["curl", "-sSf", url("/large.bin")]) == LARGE_BYTES
    kept = tmp_path / "kept"
    kept.write_bytes(LARGE_BYTES[:1_000_000])
    served.run(["curl", "-sSf", "-C", "-", "-o", str(kept), url("/large.bin")])
    assert kept.read_bytes() == LARGE_BYTES


def test_wrk(served: Served) -> None:
    seconds, connections = soak.examples(1, 20), soak.examples(20, 1000)
    out = served.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", served.url("/text.txt")])
    text = out.decode()
    assert "Socket errors" not in text
    assert "Non-2xx" not in text
    found = re.search(r"(\d+) requests in", text)
    assert found
    assert int(found[1]) >= connections
    assert served.stats()["requests"] >= int(found[1])


@pytest.mark.parametrize("keep", [[], ["-k"]], ids=["a connection each", "kept"])
def test_ab(served: Served, keep: list[str]) -> None:
    out = served.run(["ab", "-n", "200", "-c", "10", *keep, served.url("/text.txt")]).decode()
    assert re.search(r"Complete requests:\s+200\b", out)
    assert re.search(r"Failed requests:\s+0\b", out)
    assert "Non-2xx" not in out
    opened = served.stats()["opened"]
    assert opened <= 20 if keep else opened >= 200


def test_python(served: Served) -> None:
    with served.space.entered():
        s = socket.create_connection((served.address, served.port), 30)
    client = http.client.HTTPConnection(served.address, served.port)
    client.sock = s
    for _ in range(3):
        client.request("GET", "/text.txt")
        assert client.getresponse().read() == TEXT
    client.request("POST", "/text.txt", body=iter([b"a", b"b"]), encode_chunked=True)
    response = client.getresponse()
    assert (response.status, response.read()) == (405, b"405 Method Not Allowed\n")
    client.close()


def test_python_fetches(served: Served) -> None:
    code = f"import urllib.request as u; print(len(u.urlopen({served.url('/large.bin')!r}, timeout=30).read()))"
    assert int(served.run(["python3", "-c", code])) == LARGE
    assert urllib.request  # what the other process uses


CONFIG = """
daemon off; error_log {folder}/error; pid {folder}/pid; worker_processes 1;
events {{ worker_connections 256; }}
http {{
    access_log off; client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
    uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
    upstream behind {{ server {behind}; keepalive 16; }}
    server {{
        listen {linux}:8088;
        location / {{ proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection ""; }}
    }}
}}
"""


def test_nginx_in_front(served: Served, tmp_path: Path) -> None:
    needs("nginx")
    config = tmp_path / "nginx.conf"
    config.write_text(CONFIG.format(folder=tmp_path, linux=LINUX, behind=f"{served.address}:{served.port}"))
    url = f"http://{LINUX}:8088"
    with served.start(["nginx", "-e", f"{tmp_path}/error", "-c", str(config)], stderr=subprocess.PIPE) as nginx:
        try:
            probe = served.space.command(["curl", "-sf", "-o", "/dev/null", f"{url}/text.txt"])
            wait_until(lambda: subprocess.run(probe, check=False).returncode == 0, 20.0, "nginx to answer")
            assert served.run(["curl", "-sSf", f"{url}/text.txt", f"{url}/large.bin"]) == TEXT + LARGE_BYTES
            assert served.run(["curl", "-sSf", "-r", "5-9", f"{url}/text.txt"]) == TEXT[5:10]
            out = served.run(["wrk", "-t1", "-c8", "-d1s", f"{url}/text.txt"]).decode()
            assert "Non-2xx" not in out
            assert served.stats()["requests"] > 4 * served.stats()["opened"], "nginx keeps connections"
        finally:
            nginx.terminate()
            nginx.wait(20)


def test_two_kthreads(folder: Path) -> None:
    with served_on("tap", kthreads=2, root=str(folder)) as served:
        out = served.run(["wrk", "-t1", "-c16", "-d1s", served.url("/text.txt")]).decode()
        assert "Socket errors" not in out
        assert served.run(["curl", "-sSf", served.url("/large.bin")]) == LARGE_BYTES


def test_a_stop_lets_answers_end(folder: Path) -> None:
    """Who is in the middle of a large answer gets all of it, who is idle is closed, and nobody else comes in."""
    with served_on("tap", root=str(folder), tick_ms=50) as served:
        with served.space.entered():
            idle, reader = (socket.create_connection((served.address, served.port), 30) for _ in range(2))
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        reader.sendall(b"GET /large.bin HTTP/1.1\r\nHost: x\r\n\r\n")
        first = reader.recv(1000)
        assert first.startswith(b"HTTP/1.1 200 OK")
        served.service.begin_drain()
        assert idle.recv(1) == b""
        rest = b"".join(iter(lambda: reader.recv(1 << 20), b""))
        assert (first + rest).partition(b"\r\n\r\n")[2] == LARGE_BYTES
        for s in (idle, reader):
            s.close()
