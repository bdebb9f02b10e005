"""Stock nginx as a baseline: one worker on one core, set up as its documentation advises for static files, started here
and stopped by its pid."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from ...runtime.errors import CorelaneError, SystemLimit

SETTINGS = (
    "one worker, pinned; sendfile, tcp_nopush, open_file_cache, no access log, keep-alive without a limit of requests; "
    "TLS with its session tickets and the same certificate"
)
_CONFIG = """
daemon off; pid {folder}/pid; error_log {folder}/error; worker_processes 1; worker_rlimit_nofile 8192; user root;
events {{ worker_connections 4096; multi_accept on; }}
http {{
    access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 100000000; keepalive_timeout 75s;
    open_file_cache max=1000 inactive=60s; open_file_cache_valid 1s;
    client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
    uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
    {tls}
    server {{ listen {address}:{port} backlog=4096; {tls_listen} root {root}; }}
}}
"""
_TLS = (
    "ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_session_tickets on; ssl_protocols TLSv1.2 TLSv1.3;"
)
_TLS_LISTEN = "listen {address}:{tls_port} ssl backlog=4096;"


def missing() -> str:
    """Why nginx cannot be run here, in one line; "" if it can."""
    return "" if shutil.which("nginx") else "nginx is not installed: apt-get install nginx-light"


class Nginx:
    """An nginx of our own in a network namespace, by `with`: it listens at once. pid: of its master.

    certificate, key: for TLS at tls_port; None: without. through: a command that becomes it, given its command line.
    Raises SystemLimit if it is not installed, CorelaneError with what it said if it does not come up.
    """

    def __init__(
        self,
        *,
        root: Path,
        certificate: Path | None = None,
        key: Path | None = None,
        address: str,
        port: int,
        tls_port: int = 0,
        netns: str,
        cpu: int,
        through: Sequence[str] = (),
    ) -> None:
        secret = {"certificate": certificate, "key": key, "address": address, "tls_port": tls_port}
        tls, listen = (_TLS.format(**secret), _TLS_LISTEN.format(**secret)) if certificate else ("", "")
        self._values = {"root": root, "address": address, "port": port, "tls": tls, "tls_listen": listen}
        self._netns, self._cpu, self._through = netns, cpu, list(through)
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.pid = 0

    def __enter__(self) -> Nginx:
        if why := missing():
            raise SystemLimit("start nginx", why)
        self._folder = tempfile.TemporaryDirectory(prefix="corelane-nginx-")
        folder = Path(self._folder.name)
        config = folder / "nginx.conf"
        config.write_text(_CONFIG.format(folder=folder, **self._values))
        command = ["ip", "netns", "exec", self._netns, "taskset", "-c", str(self._cpu)]
        command += [*self._through, "nginx", "-e", str(folder / "error"), "-c", str(config)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.pid = self._process.pid  # what stands before nginx becomes it by exec
        self._await(folder)
        return self

    def _await(self, folder: Path, patience_s: float = 10.0) -> None:
        """It has written its pid, so it listens, and its worker exists."""
        deadline = time.monotonic() + patience_s
        while not (folder / "pid").exists() or not self.workers():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                error = folder / "error"
                said = error.read_text(errors="replace").strip() if error.exists() else ""
                self.__exit__(None, None, None)
                raise CorelaneError("start nginx", said or "it does not come up")
            time.sleep(0.005)

    def workers(self) -> list[int]:
        """Process ids of its workers."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
