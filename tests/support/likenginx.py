"""nginx on a Unix socket in front of a folder, as the oracle of HTTP/1.1, and what counts of a server's answers."""

from __future__ import annotations

import contextlib
import http.client
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cltest import wait_until
from httpcases import LAST, LAST_BODY
from httphost import Answer, Server, read_answers

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CONFIG = """\
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error crit;
events {{}}
http {{
    access_log off;
    absolute_redirect off;
    disable_symlinks on from={root};
    lingering_close always;
    max_ranges 16;
    types {{ text/html html; text/css css; text/plain txt; }}
    default_type application/octet-stream;
    if_modified_since before;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen unix:{folder}/socket;
        root {root};
        location = /take {{ default_type text/plain; return 200 "taken\\n"; }}
        location ~ /\\.(?!well-known/) {{ return 404; }}
    }}
}}
"""


class Nginx:
    """A running nginx: what it answers to bytes on a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def answers(self) -> bool:
        try:
            return bool(self.raw(LAST))
        except OSError:
            return False

    def raw(self, *pieces: bytes) -> bytes:
        """All that comes until it ends the connection; the client ends its side behind the pieces."""
        out = []
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(60)
            link.connect(self._path)
            with contextlib.suppress(BrokenPipeError):
                for piece in pieces:
                    link.sendall(piece)
                link.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while part := link.recv(1 << 20):
                    out.append(part)
        return b"".join(out)


@contextlib.contextmanager
def nginx(root: Path, folder: Path) -> Iterator[Nginx]:
    """nginx that serves `root`, and has its own files in `folder`."""
    config = folder / "nginx.conf"
    config.write_text(_CONFIG.format(folder=folder, root=root))
    program = shutil.which("nginx") or "nginx"
    with subprocess.Popen([program, "-e", str(folder / "error"), "-c", str(config)]) as process:
        try:
            made = Nginx(folder / "socket")
            wait_until(made.answers, 60.0, "nginx to answer")
            yield made
        finally:
            process.terminate()
            process.wait(60)


class Ours:
    """The same of ours."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def raw(self, *pieces: bytes) -> bytes:
        out = []
        assert self._server.open()
        for piece in pieces:
            while piece:
                piece = piece[self._server.send(piece) :]
                out.append(self._server.read())
        self._server.end()
        while part := self._server.read():
            out.append(part)
        return b"".join(out)


def _parts(answer: Answer) -> list[tuple[str, bytes]]:
    """Of multipart/byteranges: the range of each, and its bytes."""
    boundary = answer.headers["content-type"].partition("boundary=")[2].encode()
    return [
        ((re.search(rb"(?i)content-range: ([^\r]*)", head) or [b"", b""])[1].decode(), body.removesuffix(b"\r\n"))
        for head, _, body in (each.partition(b"\r\n\r\n") for each in answer.body.split(b"--" + boundary)[1:-1])
    ]


def _seen(answer: Answer) -> tuple[object, ...]:
    """What of an answer has to be the same: the bodies of errors have not."""
    headers = answer.headers
    if answer.status in (200, 206):
        kind = headers.get("content-type", "").partition(";")[0]
        body = _parts(answer) if kind == "multipart/byteranges" else answer.body
        return kind, body, "etag" in headers, headers.get("last-modified"), headers.get("content-range")
    if answer.status == 304:
        return answer.body, "etag" in headers, headers.get("last-modified"), "content-length" in headers
    return headers.get("location"), headers.get("content-range")


class Outcome(NamedTuple):
    """What came of a case. text: statuses, "open" or "shut" behind them; "?" where no answer can be read. seen: what
    else has to be the same. 100 Continue is none: whether it is said is a matter of time."""

    text: str
    seen: tuple[object, ...] = ()


def outcome(server: Nginx | Ours, request: bytes, etag: bytes, *, last: bool = True) -> Outcome:
    """What a server answers to a case."""
    sent = request.replace(b"{etag}", etag)
    raw = server.raw(sent, *([LAST] if last else [])).replace(CONTINUE, b"")
    methods = tuple(found.decode() for found in re.findall(rb"^(HEAD|GET) /", sent, re.M)) or ("GET",)
    try:
        answers = read_answers(raw, (*methods, "GET"))
    except http.client.HTTPException:
        return Outcome("?", (raw,))
    stays = bool(answers) and answers[-1].body == LAST_BODY and answers[-1].status == 200
    statuses = [str(answer.status) for answer in (answers[:-1] if stays else answers)]
    return Outcome(" ".join([*statuses, "open" if stays else "shut"]), tuple(map(_seen, answers)))
