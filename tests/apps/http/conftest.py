"""Files to serve, servers of them without a network (httphost), and one at the other end of Linux' network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cltest.certificates import make_certificate
from httphost import LARGE, MODIFIED, TEXT, Server
from httpnet import Served, served_on

from corelane.apps._native import lib


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files to serve. Nobody changes them."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.txt").write_text("secret")
    root = tmp_path_factory.mktemp("root")
    for name, data in {
        "index.html": b"<!doctype html><title>home</title>",
        "text.txt": TEXT,
        "empty": b"",
        "large.bin": bytes(range(256)) * (LARGE // 256),
        "sub/index.html": b"<p>sub",
        "sub/a b.txt": b"a space",
        "sub/style.css": b"p { color: green }",
        ".hidden": b"hidden",
        ".well-known/security.txt": b"known",
    }.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (MODIFIED, MODIFIED))
    (root / "index.html.d" / "index.html").mkdir(parents=True)
    (root / "out").symlink_to(outside)
    (root / "out.txt").symlink_to(outside / "secret.txt")
    (root / "in.txt").symlink_to("text.txt")
    os.mkfifo(root / "pipe")
    return root


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate and its key, PEM files."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl: apt-get install openssl")
    return make_certificate(tmp_path_factory.mktemp("tls"), "DNS:here", "IP:10.98.0.2")


@pytest.fixture
def serve(folder: Path) -> Iterator[Callable[..., Server]]:
    """`serve(**options)`: a server of the folder, or of another `root`."""
    if not lib.cl_http_built():
        pytest.skip("needs llhttp: apt-get install node-llhttp, and build again")
    made: list[Server] = []

    def make(root: Path | None = folder, **options: int) -> Server:
        made.append(Server(root, **options))
        made[-1].pass_ticks()
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture
def served(request: pytest.FixtureRequest, folder: Path) -> Iterator[Served]:
    """`corelane run http`'s server of the folder, on AF_XDP or what a test asks for, and Linux at the other end of its
    link."""
    with served_on(getattr(request, "param", "af_xdp"), root=str(folder)) as made:
        yield made
