"""An HTTP server without a network, in the test's own thread (apps/http/host.h), and what reads its answers."""

from __future__ import annotations

import http.client
import io
import os
from pathlib import Path
from typing import Any, NamedTuple

from corelane.apps._native import ffi, lib
from corelane.runtime.errors import check

MODIFIED = 784111777  # Sun, 06 Nov 1994 08:49:37 GMT
TEXT = "".join(f"line {i}\n" for i in range(100)).encode()
LARGE = 5 << 20  # more than is kept in memory at once


class Answer(NamedTuple):
    """A response, as http.client reads it."""

    status: int
    headers: dict[str, str]
    body: bytes


class _Bytes(io.BytesIO):
    """A socket of which only reading matters."""

    def makefile(self, *_: Any, **__: Any) -> _Bytes:
        return self

    def close(self) -> None:
        """The next answer begins where this one ends."""


def read_answers(raw: bytes, methods: tuple[str, ...] = ("GET",)) -> list[Answer]:
    """All responses in `raw`, to requests of these methods, in turn; the last one repeats. 100 Continue counts not."""
    stream, out = _Bytes(raw), []
    while stream.tell() < len(raw):
        method = methods[min(len(out), len(methods) - 1)]
        response = http.client.HTTPResponse(stream, method=method)  # type: ignore[arg-type]
        response.begin()
        headers = {name.lower(): value for name, value in response.getheaders()}
        assert len(headers) == len(response.getheaders())
        out.append(Answer(response.status, headers, response.read()))
    return out


class Server:
    """A service and one connection to it at a time."""

    def __init__(self, root: Path | None, room: int = 8 << 20, **options: int) -> None:
        made, out, err = ffi.new("struct cl_http_options *"), ffi.new("struct cl_http_service **"), ffi.new("char[256]")
        lib.cl_http_options_init(made)
        for name, value in options.items():
            setattr(made, name, value)
        folder = ffi.NULL if root is None else ffi.new("char[]", os.fsencode(root))
        check(lib.cl_http_service_new(made, folder, 1, out, err), "make a server", err)
        self.service = out[0]
        self.host = lib.cl_http_host_new(self.service, room)
        self._buffer = ffi.new("uint8_t[]", room)
        self._room = room

    def set_certificate(self, certificates: Path, key: Path) -> None:
        err = ffi.new("char[256]")
        check(lib.cl_http_set_certificate(self.service, bytes(certificates), bytes(key), err), "use a certificate", err)

    def close(self) -> None:
        lib.cl_http_host_delete(self.host)
        assert lib.cl_http_alive(self.service) == 0
        assert lib.cl_http_used_bytes(self.service) == 0
        lib.cl_http_service_delete(self.service)

    def open(self, tls: bool = False) -> bool:
        """A new connection, in place of the one before."""
        return int(lib.cl_http_host_open(self.host, tls)) == 0

    def send(self, data: bytes) -> int:
        return int(lib.cl_http_host_send(self.host, data, len(data)))

    def end(self) -> None:
        lib.cl_http_host_end(self.host)

    def read(self, most: int | None = None) -> bytes:
        n = lib.cl_http_host_read(self.host, self._buffer, self._room if most is None else most)
        return bytes(ffi.buffer(self._buffer, n))

    def pass_ticks(self, n: int = 1) -> None:
        lib.cl_http_host_pass(self.host, n, MODIFIED)

    @property
    def state(self) -> int:
        return int(lib.cl_http_host_state(self.host))

    def counts(self) -> Any:
        out = ffi.new("struct cl_http_counts *")
        lib.cl_http_sum_counts(self.service, out)
        return out

    def files(self) -> Any:
        out = ffi.new("struct cl_http_files_usage *")
        lib.cl_http_files_usage(self.service, out)
        return out

    def raw(self, *pieces: bytes) -> tuple[bytes, int]:
        """What a new connection answers to these pieces, and how it stands then."""
        assert self.open()
        out = []
        for piece in pieces:
            while piece:
                n = self.send(piece)
                piece = piece[n:]
                out.append(self.read())
                assert n or out[-1], "it takes nothing, and answers nothing"
        while part := self.read():
            out.append(part)
        return b"".join(out), self.state

    def ask(self, request: bytes) -> Answer:
        """The answer to one request on a connection of its own."""
        answers = read_answers(self.raw(request)[0], (request.split(b" ")[0].decode(),))
        assert len(answers) == 1, answers
        return answers[0]

    def get(self, target: str, *headers: str, method: str = "GET") -> Answer:
        lines = "".join(f"{line}\r\n" for line in headers)
        return self.ask(f"{method} {target} HTTP/1.1\r\nHost: here\r\n{lines}\r\n".encode())
