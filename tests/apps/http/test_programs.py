"""HTTP against what people run: curl, wrk, ab, nginx in front of it, Python's clients."""

from __future__ import annotations

import http.client
import re
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cltest import soak, wait_until
from httphost import LARGE, TEXT
from httpnet import LINUX, Served, needs, served_on

pytestmark = pytest.mark.root

LARGE_BYTES = bytes(range(256)) * (LARGE // 256)


@pytest.mark.parametrize("served", ["tap", "af_xdp"], indirect=True)
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
    code = f"import urllib.request as u; print(len(u.urlopen({served.url('/large.bin')!r}, timeout=60).read()))"
    assert int(served.run(["python3", "-c", code])) == LARGE
    assert urllib.request  # what the other process uses


@pytest.fixture
def served_tls(folder: Path, certificate: tuple[Path, Path]) -> Iterator[Served]:
    """With TLS on port 8443 besides."""
    names = dict(zip(("tls_cert", "tls_key"), map(str, certificate), strict=True))
    with served_on("af_xdp", root=str(folder), **names) as made:
        yield made


def test_curl_over_tls(served_tls: Served, certificate: tuple[Path, Path]) -> None:
    url, curl = f"https://{served_tls.address}:8443", ["curl", "-sSf", "--cacert", str(certificate[0])]
    assert (
        served_tls.run([*curl, f"{url}/text.txt", f"{url}/large.bin", f"{url}/sub/"]) == TEXT + LARGE_BYTES + b"<p>sub"
    )
    assert served_tls.stats()["handshakes"] == 1
    for version in ("--tlsv1.2", "--tlsv1.3"):
        assert served_tls.run([*curl, version, "--tls-max", version[-3:], f"{url}/text.txt"]) == TEXT
    assert served_tls.run(["curl", "-sSf", served_tls.url("/text.txt")]) == TEXT, "plain, beside it"


def test_openssl_resumes(served_tls: Served) -> None:
    command = ["openssl", "s_client", "-connect", f"{served_tls.address}:8443", "-alpn", "http/1.1", "-tls1_2"]
    done = served_tls.space.command([*command, "-reconnect"])
    out = subprocess.run(done, input=b"", capture_output=True, timeout=60, check=False).stdout.decode()
    assert "ALPN protocol: http/1.1" in out
    assert out.count("\nReused, ") == 5
    wait_until(lambda: served_tls.stats()["resumed"] == 5, 60.0, "resumed handshakes to be counted")


def test_openssl_renegotiates_nothing(served_tls: Served) -> None:
    """An R on a line of its own asks for a new handshake: it is declined by an alert."""
    command = ["openssl", "s_client", "-connect", f"{served_tls.address}:8443", "-tls1_2"]
    pipe = subprocess.PIPE
    with served_tls.start(command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(b"R\n")
        client.stdin.flush()
        assert b"no renegotiation" in client.stdout.read()
    assert served_tls.stats()["handshakes"] == 1


def test_wrk_over_tls(served_tls: Served) -> None:
    out = served_tls.run(["wrk", "-t1", "-c10", "-d1s", f"https://{served_tls.address}:8443/text.txt"]).decode()
    assert "Socket errors" not in out
    assert "Non-2xx" not in out
    assert served_tls.stats()["requests"] >= 10


PAGE = """<!doctype html><title>a page</title><link rel="stylesheet" href="style.css"><p id="out">not yet</p>
<img id="image" src="dot.svg"><script src="page.js"></script>"""
SCRIPT = """addEventListener("load", async () => {
  const colour = getComputedStyle(document.getElementById("out")).color;
  const text = await (await fetch("/text.txt", {headers: {Range: "bytes=0-5"}})).text();
  const posted = await fetch("/text.txt", {method: "POST", body: "x"});
  const image = document.getElementById("image").naturalWidth;
  document.getElementById("out").textContent = [colour, text, posted.status, image].join("; ");
});"""


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_browser_loads_a_page(certificate: tuple[Path, Path], tmp_path: Path, scheme: str) -> None:
    """Headless Chromium: a page, its style, script and image, a part of a file, and a POST."""
    needs("chromium")
    root = tmp_path / "root"
    root.mkdir()
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="7" height="7"/>'
    files = {"index.html": PAGE, "page.js": SCRIPT, "style.css": "p { color: rgb(1, 2, 3) }", "dot.svg": svg}
    for name, text in (files | {"text.txt": TEXT.decode()}).items():
        (root / name).write_text(text)
    with served_on("tap", root=str(root), tls_cert=str(certificate[0]), tls_key=str(certificate[1])) as served:
        url = served.url() if scheme == "http" else f"https://{served.address}:8443/"
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--ignore-certificate-errors",
        ]
        flags += [f"--user-data-dir={tmp_path}/profile", "--virtual-time-budget=10000", "--dump-dom"]
        dom = served.run(["chromium", *flags, url], timeout_s=120.0).decode()
        assert '<p id="out">rgb(1, 2, 3); line 0; 405; 7</p>' in dom
        assert served.stats()["partial"] == 1


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
            wait_until(lambda: subprocess.run(probe, check=False).returncode == 0, 60.0, "nginx to answer")
            assert served.run(["curl", "-sSf", f"{url}/text.txt", f"{url}/large.bin"]) == TEXT + LARGE_BYTES
            assert served.run(["curl", "-sSf", "-r", "5-9", f"{url}/text.txt"]) == TEXT[5:10]
            out = served.run(["wrk", "-t1", "-c8", "-d1s", f"{url}/text.txt"]).decode()
            assert "Non-2xx" not in out
            assert served.stats()["requests"] > 4 * served.stats()["opened"], "nginx keeps connections"
        finally:
            nginx.terminate()
            nginx.wait(60)


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
        with served.space.entered(), pytest.raises(ConnectionRefusedError):
            socket.create_connection((served.address, served.port), 30)
        rest = b"".join(iter(lambda: reader.recv(1 << 20), b""))
        assert (first + rest).partition(b"\r\n\r\n")[2] == LARGE_BYTES
        for s in (idle, reader):
            s.close()
