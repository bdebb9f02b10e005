"""The load tool against servers that people have: memcached, redis-server, Python's own HTTP server."""

from __future__ import annotations

import contextlib
import http.server
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cltest.ports import free_port
from cltest.waiting import wait_until

from corelane.bench.baseline import memcached
from corelane.bench.load import targets, workloads
from corelane.bench.load.measuring import Measured, Plan, Server, measure_share
from corelane.runtime.errors import CorelaneError

TRIALS = 20  # of what a busy machine may fail to carry

RATE, SECONDS = 2000.0, 0.1


def listens(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Whether somebody takes connections there; the process must not have ended."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    assert process.poll() is None, f"{process.args} ended"
    return False


@contextlib.contextmanager
def redis(*options: str) -> Iterator[int]:
    """redis-server on a free port of loopback, without files."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed: apt-get install redis-server")
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/tmp")

    try:
        wait_until(lambda: listens(port, process), what="redis-server to listen")
        yield port
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """Stores to be loaded, by name."""
    if why := memcached.missing():
        pytest.skip(why)
    with memcached.Memcached() as one, redis() as port:
        yield {"memcached": f"memcached://127.0.0.1:{one.tcp_port}", "redis": f"redis://127.0.0.1:{port}/1"}


def plan(url: str, workload: str = "get", keys: int = 200, **options: object) -> Plan:
    work = workloads.changed(workloads.find(workload), keys=keys)
    target = targets.resolved(targets.parse(url))
    return Plan(target=target, workload=work, **{"warm_s": 0.0} | options)


def load(planned: Plan, rate: float = RATE, seconds: float = SECONDS) -> Measured:
    with Server(planned) as server:
        server.prepare()
        return server.measure(rate, seconds)


@pytest.mark.parametrize("store", ["memcached", "redis"])
@pytest.mark.parametrize("workload", workloads.NAMED)
def test_every_workload_is_answered(urls: dict[str, str], store: str, workload: str):
    counts = load(plan(urls[store], workload)).result.counts
    assert counts["answered"] == counts["offered"] > 0
    assert counts["misses"] == 0
    asked = workloads.find(workload).mix
    wrote = asked.get("set", 0) + asked.get("insert", 0) + asked.get("update", 0)
    assert counts["stored"] == pytest.approx(wrote * counts["offered"], abs=5 * (1 + counts["offered"] ** 0.5))


def test_operations_are_told_apart(urls: dict[str, str]):
    result = load(plan(urls["redis"], "ycsb-f")).result
    assert set(result.by_op) == {"get", "update"}
    assert sum(h.count for h in result.by_op.values()) == result.counts["answered"]
    # An update reads and then stores.
    assert result.by_op["update"].count == result.counts["stored"]


def test_without_stored_keys_all_are_misses(urls: dict[str, str]):
    with redis() as port:
        counts = load(plan(f"redis://127.0.0.1:{port}", preload=False)).result.counts
    assert counts["misses"] == counts["answered"] == counts["offered"] > 0


@pytest.mark.parametrize("store", ["memcached", "redis"])
def test_long_values_come_back_whole(urls: dict[str, str], store: str):
    work = workloads.changed(workloads.find("ycsb-a"), keys=8, value_bytes="300K")
    target = targets.resolved(targets.parse(urls[store]))
    counts = load(Plan(target=target, workload=work, warm_s=0.0, depth=4), 200).result.counts
    assert counts["answered"] == counts["offered"] > 0
    assert counts["hits"] > 0
    assert counts["bytes_in"] >= 300 * 1024 * counts["hits"]


def test_passwords():
    with redis("--requirepass", "right") as port:
        url = f"redis://:right@127.0.0.1:{port}/3"
        assert load(plan(url)).result.counts["hits"] > 0
        with pytest.raises(CorelaneError, match=r"refused the greeting"):
            load(plan(url.replace("right", "wrong")))
        with pytest.raises(CorelaneError, match=r"refused to store a key; it said: -NOAUTH"):
            load(plan(f"redis://127.0.0.1:{port}"))


def test_a_full_server_says_so():
    with redis("--maxmemory", "1mb", "--maxmemory-policy", "noeviction") as port:
        work = workloads.changed(workloads.find("set"), keys=64, value_bytes="100K")
        target = targets.resolved(targets.parse(f"redis://127.0.0.1:{port}"))
        measured = load(Plan(target=target, workload=work, warm_s=0.0, preload=False), 500)
    assert measured.result.counts["errors"] > 0
    assert measured.result.heard.startswith("-OOM")
    assert "load" in {doubt.check for doubt in measured.doubts}


class Pages(http.server.BaseHTTPRequestHandler):
    """Answers /KEY with a body of its own, /chunked in chunks, /old by ending the connection; /last says that it ends
    the connection, and does so a little later; /none: 404."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = self.path.encode()
        if self.path == "/none":
            self.send_error(404)
            return
        self.send_response(200)
        if self.path == "/chunked":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
            return
        if self.path == "/old":
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(body)))
            if self.path == "/last":
                self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        if self.path == "/last":
            self.wfile.flush()
            time.sleep(0.005)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def web() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(60)


@pytest.mark.parametrize("path", ["/", "/{key}", "/chunked", "/old", "/last"])
def test_http(web: str, path: str):
    counts = load(plan(web + path, connections=2), 200).result.counts
    assert counts["answered"] == counts["hits"] == counts["offered"] > 0
    assert counts["reconnects"] == 0  # one that ends after a whole answer is no failure


def test_http_with_a_connection_for_each_request(web: str):
    counts = load(plan(web + "/", connections=8, fresh=True), 100).result.counts
    assert counts["answered"] == counts["offered"] > 0


def test_errors_of_http_are_told(web: str):
    measured = load(plan(web + "/none", connections=2), 200)
    counts = measured.result.counts
    assert 0 < counts["errors"] <= counts["offered"]
    assert counts["answered"] == 0  # an error is no answer
    assert measured.result.heard.startswith("HTTP/1.1 404")


@contextlib.contextmanager
def nginx(folder: Path) -> Iterator[int]:
    """nginx on a free port of loopback, with one file to serve."""
    if shutil.which("nginx") is None:
        pytest.skip("nginx is not installed: apt-get install nginx-light")
    port = free_port()
    (folder / "page.html").write_text("x" * 1000)
    user = "user root root;" if os.geteuid() == 0 else ""
    (folder / "conf").write_text(
        f"{user} daemon off; pid {folder}/pid; error_log {folder}/errors; events {{}}\n"
        f"http {{ access_log off; server {{ listen 127.0.0.1:{port}; root {folder}; }} }}\n"
    )
    process = subprocess.Popen(["nginx", "-p", str(folder), "-c", "conf"], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: listens(port, process), what="nginx to listen")
        yield port
    finally:
        process.terminate()
        process.wait(60)


def test_nginx(tmp_path: Path):
    with nginx(tmp_path) as port:
        counts = load(plan(f"http://127.0.0.1:{port}/page.html", connections=4), 500).result.counts
        assert counts["answered"] == counts["offered"] > 0
        assert counts["bytes_in"] > 1000 * counts["offered"]
        missing = load(plan(f"http://127.0.0.1:{port}/none", connections=4), 200).result
    assert 0 < missing.counts["errors"] <= missing.counts["offered"]
    assert missing.counts["answered"] == 0
    assert missing.heard.startswith("HTTP/1.1 404")


@pytest.mark.parametrize(
    "url", ["udp://127.0.0.1:9", "memcached://127.0.0.1:9", "redis://127.0.0.1:9", "http://127.0.0.1:9/"]
)
def test_the_clients_own_share_is_measured(url: str):
    """Of each protocol with what is asked of it as a rule, short keys among that."""
    shares = (measure_share(plan(url), 1000, 0.1) for _ in range(TRIALS))
    share = next((share for share in shares if not share.why), None)
    assert share, "the reflector never carried 1,000 requests/s"
    assert 0 < share.p50_us <= share.p99_us <= share.p999_us
