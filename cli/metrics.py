"""corelane metrics: what the iokernel and its applications count, for Prometheus.

Printed once, as node_exporter's textfile collector wants it, served over HTTP, or sent to a collector of OpenTelemetry
(telemetry.py). What is counted, under which name: measures.py. In which format: exposition.py.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import http.server
import io
import ipaddress
import socket
import sys
import threading
import time
from typing import Any

from ..runtime.errors import CorelaneError, SystemLimit
from . import exposition, values
from .measures import measure
from .traced import Traces
from .usage import WrongUsage
from .watch import snapshot

IMPORTS = ("..iokernel._native",)
_CLIENTS = 16  # of the HTTP server at a time
_REQUEST_S, _REQUEST_BYTES = 5.0, 16384  # that a client has for its request
_PAUSE_S = 0.1  # after there was no descriptor for a client, who waits in the kernel's queue


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--socket", type=values.socket, metavar="PATH", help=values.SOCKET)
    parser.add_argument(
        "--listen", type=address, metavar="[HOST:]PORT", help="serve /metrics over HTTP (HOST: 127.0.0.1) until Ctrl-C"
    )
    parser.add_argument(
        "--otlp", metavar="URL", help="send them to an OpenTelemetry collector, as http://127.0.0.1:4318, until Ctrl-C"
    )
    parser.add_argument(
        "--every", type=values.seconds, default=10.0, metavar="S", help="with --otlp: so often (default 10)"
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
    """Print the metrics, serve or send them."""
    from ..runtime.paths import default_socket

    if options.otlp is not None and options.listen is not None:
        raise WrongUsage("--otlp", "--listen is given, too", "start one command for each")
    stats = snapshot(options.socket, options.wait)
    path = options.socket or default_socket()
    if options.otlp is not None:
        from . import telemetry

        return telemetry.send(options.otlp, max(options.every, 0.1), lambda: measure(snapshot(path)))
    if options.listen is None:
        print(exposition.text(measure(stats)), end="")
        return 0
    return _serve(options.listen, path)


def _serve(listen: tuple[str, int], path: str) -> int:
    try:
        server = Server(listen, path)
    except OSError as error:
        where = "{}:{}".format(*listen)
        raise SystemLimit(f"listen on {where}", str(error.strerror), "choose another --listen") from error
    with server:
        print("corelane metrics: http://{}:{}/metrics".format(*server.server_address[:2]), flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0  # how one ends it
    return 0


class Server(http.server.ThreadingHTTPServer):
    """GET /metrics, of some clients at a time: who has let it wait for the longest gives way to one more. While no
    iokernel answers: 503 with the reason."""

    daemon_threads = True

    def __init__(self, where: tuple[str, int], path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._clients: dict[socket.socket, bool] = {}  # oldest first, and whether it waits for the client
        self._traces, self._look = Traces(), threading.Lock()
        super().__init__(where, _Handler)

    def metrics(self, with_exemplars: bool) -> exposition.Metrics:
        """As of now. CorelaneError: no iokernel answers."""
        stats = snapshot(self.path)
        if with_exemplars:
            with self._look:
                self._traces.add_to(stats)
        return measure(stats)

    def server_close(self) -> None:
        """Once it serves no more."""
        super().server_close()
        with self._look:
            self._traces.close()

    def get_request(self) -> Any:
        """The next client. OSError: there is none, or no descriptor for it."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(_PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """On a thread of its own; the connection is closed if there is no room, or no thread is to be had."""
        if not self._enter(request):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            self.shutdown_request(request)

    def _enter(self, request: socket.socket) -> bool:
        """Whether there is room for one more. What is cut off for it ends on its own thread."""
        with self._lock:
            if len(self._clients) >= _CLIENTS:
                slow = next((client for client, waits in self._clients.items() if waits), None)
                if slow is None:
                    return False
                del self._clients[slow]
                with contextlib.suppress(OSError):  # it has gone
                    slow.shutdown(socket.SHUT_RDWR)
            self._clients[request] = True
            return True

    def waits_for(self, request: socket.socket, waits: bool) -> None:
        """The server waits for this client from now on, or the client for the server."""
        with self._lock:
            if request in self._clients:
                self._clients[request] = waits

    def shutdown_request(self, request: Any) -> None:
        """A client's end."""
        with self._lock:
            self._clients.pop(request, None)
        super().shutdown_request(request)

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
        self._wait(False)

    def _wait(self, waits: bool) -> None:
        assert isinstance(self.server, Server)
        self.server.waits_for(self.connection, waits)

    def do_GET(self) -> None:
        """One scrape."""
        if self.path.partition("?")[0] != "/metrics":
            self._answer(404, b"only /metrics is here\n")
            return
        assert isinstance(self.server, Server)
        kind = exposition.wanted(self.headers.get("Accept"))
        try:
            found = self.server.metrics(with_exemplars=kind != exposition.TEXT)
            self._answer(200, exposition.FORMATS[kind](found), kind)
        except CorelaneError as error:
            self._answer(503, f"{error}\n".encode(errors="backslashreplace"))  # of a socket's path that is no text

    def _answer(self, code: int, body: bytes, kind: str = exposition.TEXT) -> None:
        self._wait(True)
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes come every few seconds: nothing is said of each."""
