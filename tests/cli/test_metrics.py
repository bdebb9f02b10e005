"""What `metrics` makes of statistics, and how it serves them. With an iokernel: test_end_to_end.py. What a scraper and
a collector make of it: test_exposition.py, test_telemetry.py."""

from __future__ import annotations

import contextlib
import errno
import http.server
import re
import socket
import struct
import threading
import time
import types
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from cltest import wait_until

from corelane.cli import exposition, main, metrics
from corelane.cli.measures import measure
from corelane.iokernel import Iokernel

SAMPLE = re.compile(r'[a-z_][a-z0-9_]*(\{[a-z_]+="([^"\\\n]|\\.)*"(,[a-z_]+="([^"\\\n]|\\.)*")*\})? [-+]?[0-9.e+-]+\Z')


def times(n: int) -> dict[str, Any]:
    marks = dict.fromkeys(("p50_us", "p90_us", "p99_us", "p999_us", "max_us"), 5.0 if n else None)
    return {"n": n, **marks, "sum_ns": 4900 * n, "buckets_ns": [[4800, 5000, n]] if n else []}


NOBODY = 1 << 22  # no process: Linux' own limit
STATS: dict[str, Any] = {
    "pid": 1,
    "socket": '/a "b"\\c\n',
    "mode": "block",
    "uptime_s": 2.5,
    "loops": [{"cpu": 3, "rounds": 7, "busy_s": 0.5}],
    "uplinks": [{"name": "cl0", "mac": "02", "gone": True, "rx_frames": 4, "rx_dropped_full": 1, "buffers_free": 9}],
    "apps": [
        {
            "name": "kv",
            "id": 1,
            "pid": NOBODY,
            "rx_delivered": 5,
            "rx_dropped_ring_full": 2,
            "buffers_lent": 3,
            "cores": {"cores": 1, "core_s": 1.5, "class": "latency", "detection": times(4)},
            "counters": {"published_s": 1.0, "values": {"handled": 6, "dropped_udp_checksum": 8, "items": 10}},
            "services": [{"name": "udp:11211", "requests": 9, "latency": times(7)}],
        },
        {"name": "other", "id": 2, "pid": NOBODY + 1, "rx_delivered": 1, "cores": None, "counters": None},
    ],
    "cores": {
        "cpus": [{"cpu": 1, "owner": None, "busy": False, "moves": 11}],
        "allocators": [{"loop": 0, "decisions": 12, "actuation": {"ask": times(2), "evict": times(0)}}],
    },
    "control": {"accepted": 13, "last_error": ""},
    "departed": {"apps": 14},
}


def test_each_number_is_a_sample_of_its_metric() -> None:
    lines = set(exposition.text(measure(STATS)).splitlines())
    assert lines >= {
        'corelane_up{socket="/a \\"b\\"\\\\c\\n",mode="block"} 1',
        'corelane_loop_rounds_total{loop="0",cpu="3"} 7',
        'corelane_uplink_gone{uplink="cl0"} 1',
        'corelane_uplink_dropped_total{uplink="cl0",by="iokernel",reason="rx_dropped_full"} 1',
        'corelane_app_rx_delivered_total{app="kv"} 5',
        'corelane_app_rx_delivered_total{app="other"} 1',
        'corelane_app_buffers_lent{app="kv"} 3',
        'corelane_app_dropped_total{app="kv",by="iokernel",reason="rx_dropped_ring_full"} 2',
        'corelane_app_dropped_total{app="kv",by="application",reason="dropped_udp_checksum"} 8',
        'corelane_app_own_handled{app="kv"} 6',
        'corelane_app_cores_cores{app="kv"} 1',
        'corelane_app_cores_core_s_total{app="kv"} 1.5',
        'corelane_app_cores_detection_seconds_bucket{app="kv",le="2.5e-06"} 0',
        'corelane_app_cores_detection_seconds_bucket{app="kv",le="5e-06"} 4',
        'corelane_app_cores_detection_seconds_bucket{app="kv",le="+Inf"} 4',
        'corelane_app_cores_detection_seconds_sum{app="kv"} 1.96e-05',
        'corelane_app_cores_detection_seconds_count{app="kv"} 4',
        'corelane_service_latency_seconds_count{app="kv",service="udp:11211"} 7',
        'corelane_service_requests_total{app="kv",service="udp:11211"} 9',
        'corelane_core_moves_total{cpu="1"} 11',
        'corelane_allocator_actuation_seconds_count{loop="0",step="evict"} 0',
        'corelane_control_events_total{event="accepted"} 13',
        "corelane_departed_apps_total 14",
    }


def test_the_format_is_prometheus() -> None:
    """Each metric has its type once, before its samples, which stand together."""
    known: list[str] = []
    for line in exposition.text(measure(STATS)).splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("counter", "gauge", "histogram", "untyped")
            assert name not in known
            known.append(name)
        else:
            assert SAMPLE.match(line), line
            of = [known[-1] + suffix for suffix in ("", "_bucket", "_sum", "_count")]
            assert re.split(r"[{ ]", line)[0] in of, line


@pytest.mark.parametrize(("text", "where"), [("9", ("127.0.0.1", 9)), ("10.0.0.1:0", ("10.0.0.1", 0))])
def test_addresses(text: str, where: tuple[str, int]) -> None:
    assert metrics.address(text) == where


@pytest.mark.parametrize("text", ["", "x", "1:2:3", "host:1", "65536", "-1", "::1"])
def test_what_is_no_address_is_said(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["metrics", f"--listen={text}"]) == 2
    assert "use PORT or HOST:PORT" in capsys.readouterr().err


def test_an_iokernel_is_scraped(socket_path: str) -> None:
    with Iokernel(socket_path, poll="block"), metrics.Server(("127.0.0.1", 0), socket_path) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = "http://{}:{}".format(*server.server_address[:2])
        with urllib.request.urlopen(base + "/metrics", timeout=60) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert b'mode="block"} 1\n' in answer.read()
        for kind in (exposition.OPENMETRICS, exposition.PROTOBUF):
            asked = urllib.request.Request(base + "/metrics", headers={"Accept": f"{kind}, text/plain;q=0.5"})
            with urllib.request.urlopen(asked, timeout=60) as answer:
                assert answer.headers["Content-Type"] == kind
                assert b"corelane_up" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(base + "/other", timeout=60)
        server.shutdown()


@pytest.mark.parametrize("name", ["absent", "f\udcff\u00e9"], ids=ascii)
def test_without_an_iokernel_a_scrape_says_so(tmp_path: Path, name: str) -> None:
    with metrics.Server(("127.0.0.1", 0), str(tmp_path / name)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen("http://{}:{}/metrics".format(*server.server_address[:2]), timeout=60)
        assert raised.value.code == 503
        assert "no iokernel listens" in raised.value.read().decode()
        server.shutdown()


def scraped(server: metrics.Server, path: str = "/metrics") -> int:
    """The status of one scrape."""
    where = "http://{}:{}".format(*server.server_address[:2])
    try:
        with urllib.request.urlopen(where + path, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /metrics HTTP/1.0\r\nX: y\r\n"], ids=["nothing", "a byte", "lines"])
def test_clients_that_dawdle_keep_nobody_else_out(
    tmp_path: Path, sent: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(metrics.Server(("127.0.0.1", 0), str(tmp_path / "absent")))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        slow = []
        for _ in range(metrics._CLIENTS):
            slow.append(stack.enter_context(socket.create_connection(server.server_address[:2])))
            slow[-1].sendall(sent)
            wait_until(lambda: len(server._clients) == len(slow))
        assert scraped(server) == 503, "it is answered, with the reason"
        slow[0].settimeout(60)
        assert slow[0].recv(1) == b"", "the one that was there for the longest has given way"
        wait_until(lambda: len(server._clients) == len(slow) - 1)
        server.shutdown()
    assert capsys.readouterr().err == ""


def test_who_does_not_take_its_answer_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_CLIENTS", 1)
    monkeypatch.setattr(metrics.Server, "metrics", lambda server, with_exemplars: None)
    monkeypatch.setitem(exposition.FORMATS, exposition.TEXT, lambda found: b"x" * (64 << 20))
    with metrics.Server(("127.0.0.1", 0), "") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with socket.create_connection(server.server_address[:2]) as deaf:
            deaf.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert deaf.recv(1) == b"H"
            assert scraped(server, "/other") == 404
        server.shutdown()


def test_who_waits_for_the_server_is_not_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_CLIENTS", 1)
    asked, goes_on = threading.Event(), threading.Event()

    def measured(server: metrics.Server, with_exemplars: bool) -> exposition.Metrics:
        asked.set()
        assert goes_on.wait(60)
        return found(server, with_exemplars)

    found = metrics.Server.metrics
    monkeypatch.setattr(metrics.Server, "metrics", measured)
    with metrics.Server(("127.0.0.1", 0), str(tmp_path / "absent")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with socket.create_connection(server.server_address[:2], timeout=60) as first:
            first.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert asked.wait(60)
            with socket.create_connection(server.server_address[:2], timeout=60) as one_too_many:
                assert one_too_many.recv(1) == b""
            goes_on.set()
            assert first.recv(12) == b"HTTP/1.0 503"
        server.shutdown()


def test_a_client_has_so_long_for_its_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And one that goes is none of ours."""
    with metrics.Server(("127.0.0.1", 0), str(tmp_path / "absent")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(metrics, "_REQUEST_S", 0.0)
        with socket.create_connection(server.server_address[:2], timeout=60) as slow:
            assert slow.recv(1) == b""
        monkeypatch.undo()
        gone = socket.create_connection(server.server_address[:2])
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        gone.sendall(b"GET /metrics HTTP/1.0\r\n")
        wait_until(lambda: len(server._clients) == 1)
        gone.close()
        wait_until(lambda: not server._clients)
        server.shutdown()
    assert capsys.readouterr().err == ""


def test_out_of_descriptors_or_threads_it_waits_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    get = http.server.HTTPServer.get_request

    def fails_twice(server: http.server.HTTPServer) -> object:
        tries.append(1)
        if len(tries) <= 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return get(server)

    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pauses: list[float] = []
    monkeypatch.setattr(http.server.HTTPServer, "get_request", fails_twice)
    monkeypatch.setattr(metrics, "time", types.SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic))
    with metrics.Server(("127.0.0.1", 0), str(tmp_path / "absent")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = server.server_address[:2]
        with monkeypatch.context() as planted:
            planted.setattr(threading.Thread, "start", no_thread)
            with socket.create_connection(where) as sock:
                assert sock.recv(1) == b""
        assert pauses == [metrics._PAUSE_S] * 2
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen("http://{}:{}/metrics".format(*where), timeout=60)
        wait_until(lambda: not server._clients)
        server.shutdown()
