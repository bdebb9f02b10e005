"""corelane metrics: what the iokernel and its applications count, in Prometheus' text format.

Printed once, as node_exporter's textfile collector wants it, or served over HTTP. A counter of the statistics is
`corelane_GROUP_NAME_total`, a number that goes up and down `corelane_GROUP_NAME`. What was dropped is one metric of a
group, with the reason as a label. What an application counts of itself is `corelane_app_own_NAME`.
"""

from __future__ import annotations

import argparse
import http.server
import io
import ipaddress
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ..runtime.errors import CorelaneError, SystemLimit
from . import values
from .watch import snapshot

IMPORTS = ("..iokernel._native",)
_CLIENTS = 16  # of the HTTP server at a time
_REQUEST_S, _REQUEST_BYTES = 5.0, 16384  # that a client has for its request
_NUMBER = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_QUANTILES = {"0.5": "p50_us", "0.9": "p90_us", "0.99": "p99_us", "1": "max_us"}
_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


class Metrics:
    """Samples by metric, in the order of their first coming: a metric's samples stand together."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add(self, kind: str, name: str, labels: Labels, value: float, suffix: str = "") -> None:
        """A sample of the metric `name`, whose kind is "counter", "gauge", "summary" or "untyped"."""
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        lines = self._lines.setdefault(name, [f"# TYPE {name} {kind}"])
        lines.append(f"{name}{suffix}{{{shown}}} {value!r}" if shown else f"{name}{suffix} {value!r}")

    def text(self) -> str:
        return "\n".join(line for lines in self._lines.values() for line in lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def render(stats: Mapping[str, Any]) -> str:
    """The statistics of an iokernel as metrics."""
    out = Metrics()
    out.add("gauge", "corelane_up", {"socket": str(stats["socket"]), "mode": str(stats["mode"])}, 1)
    out.add("gauge", "corelane_uptime_seconds", {}, stats["uptime_s"])
    for index, loop in enumerate(stats["loops"]):
        _row(out, "loop", {"loop": str(index), "cpu": str(loop["cpu"])}, loop)
    for uplink in stats["uplinks"]:
        _row(out, "uplink", {"uplink": str(uplink["name"])}, uplink)
    for app in stats["apps"]:
        labels = {"app": str(app["name"])}
        if app.get("member") is not None:
            labels["member"] = str(app["member"])
        _row(out, "app", labels, app)
        if app.get("cores") is not None:
            _row(out, "app_cores", labels, app["cores"])
        if app.get("counters") is not None:
            _own(out, labels, app["counters"]["values"])
    if stats.get("cores") is not None:
        for core in stats["cores"]["cpus"]:
            _row(out, "core", {"cpu": str(core["cpu"])}, core)
        for allocator in stats["cores"]["allocators"]:
            _row(out, "allocator", {"loop": str(allocator["loop"])}, allocator)
    for event, n in stats["control"].items():
        if isinstance(n, int):
            out.add("counter", "corelane_control_events_total", {"event": event}, n)
    for name, n in stats["departed"].items():
        out.add("counter", f"corelane_departed_{name}_total", {}, n)
    return out.text()


def _numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a row, whose names can be a metric's. True and False are 1 and 0."""
    for name, value in row.items():
        if isinstance(value, int | float) and _NUMBER.fullmatch(name):
            yield name, int(value) if isinstance(value, bool) else value


def _row(out: Metrics, group: str, labels: Labels, row: Mapping[str, Any]) -> None:
    from ..iokernel.control.report import GAUGES

    for name, value in _numbers(row):
        if name in labels or name in ("id", "pid", "uid", "slot"):
            continue
        if "dropped_" in name:
            out.add("counter", f"corelane_{group}_dropped_total", {**labels, "by": "iokernel", "reason": name}, value)
        elif name in GAUGES or isinstance(row[name], bool):
            out.add("gauge", f"corelane_{group}_{name}", labels, value)
        else:
            out.add("counter", f"corelane_{group}_{name}_total", labels, value)
    for name, found in row.items():
        if isinstance(found, dict) and "buckets_ns" in found:
            _summary(out, f"corelane_{group}_{name}_seconds", labels, found)
        elif name == "actuation" and isinstance(found, dict):
            for step, times in found.items():
                _summary(out, f"corelane_{group}_{name}_seconds", {**labels, "step": step}, times)


def _summary(out: Metrics, name: str, labels: Labels, times: Mapping[str, Any]) -> None:
    for quantile, key in _QUANTILES.items():
        if times[key] is not None:
            out.add("summary", name, {**labels, "quantile": quantile}, times[key] / 1e6)
    out.add("summary", name, labels, times["n"], "_count")


def _own(out: Metrics, labels: Labels, counted: Mapping[str, int]) -> None:
    """What an application counts of itself."""
    for name, value in counted.items():
        if "dropped_" in name:
            out.add("counter", "corelane_app_dropped_total", {**labels, "by": "application", "reason": name}, value)
        else:
            out.add("untyped", f"corelane_app_own_{name}", labels, value)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--socket", type=values.socket, metavar="PATH", help=values.SOCKET)
    parser.add_argument(
        "--listen", type=address, metavar="[HOST:]PORT", help="serve /metrics over HTTP (HOST: 127.0.0.1) until Ctrl-C"
    )
    parser.add_argument(
        "--wait", type=values.seconds, default=0, metavar="S", help="wait so long for the iokernel to come up"
    )


def address(text: str) -> tuple[str, int]:
    """("127.0.0.1", 9123) of "9123" or "127.0.0.1:9123"."""
    host, _, port = text.rpartition(":")
    try:
        where = str(ipaddress.IPv4Address(host or "127.0.0.1"))
        if not 0 <= (number := int(port)) < 65536:
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no address: use PORT or HOST:PORT, as 127.0.0.1:9123") from None
    return where, number


def run(options: argparse.Namespace) -> int:
    """Print the metrics, or serve them."""
    from ..runtime.paths import default_socket

    text = render(snapshot(options.socket, options.wait))
    path = options.socket or default_socket()
    if options.listen is None:
        print(text, end="")
        return 0
    try:
        server = Server(options.listen, path)
    except OSError as error:
        where = "{}:{}".format(*options.listen)
        raise SystemLimit(f"listen on {where}", str(error.strerror), "choose another --listen") from error
    with server:
        print("corelane metrics: http://{}:{}/metrics".format(*server.server_address[:2]), flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0  # how one ends it
    return 0


class Server(http.server.ThreadingHTTPServer):
    """GET /metrics, of some clients at a time. While no iokernel answers: 503 with the reason."""

    daemon_threads = True

    def __init__(self, where: tuple[str, int], path: str) -> None:
        self.path = path
        self._room = threading.Semaphore(_CLIENTS)
        super().__init__(where, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """On a thread of its own; the connection is closed if there are too many."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One client, to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone, or that was too slow, is none of ours."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = 5  # s, for a client that takes no answer

    def setup(self) -> None:
        """The request is read first, as a whole: a byte now and then does not keep a client here."""
        super().setup()
        deadline, data = time.monotonic() + _REQUEST_S, b""
        while b"\r\n\r\n" not in data and b"\n\n" not in data and len(data) < _REQUEST_BYTES:
            self.connection.settimeout(max(deadline - time.monotonic(), 0.001))
            if not (more := self.connection.recv(_REQUEST_BYTES)):
                break
            data += more
        self.connection.settimeout(self.timeout)
        self.rfile = io.BytesIO(data)

    def do_GET(self) -> None:
        """One scrape."""
        if self.path.partition("?")[0] != "/metrics":
            self._answer(404, "only /metrics is here\n")
            return
        assert isinstance(self.server, Server)
        try:
            self._answer(200, render(snapshot(self.server.path)))
        except CorelaneError as error:
            self._answer(503, f"{error}\n")

    def _answer(self, code: int, text: str) -> None:
        body = text.encode(errors="backslashreplace")  # of a socket's path that is no text
        self.send_response(code)
        self.send_header("Content-Type", _TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes come every few seconds: nothing is said of each."""
