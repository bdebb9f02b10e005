"""What tests of the event loop have in common: the same test on asyncio's own loop and on ours."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from cltest.certificates import make_certificate

from corelane.libos import asyncio as libos_asyncio

Run = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]
PATIENCE_S = 60  # under the sanitizers all takes longer


@pytest.fixture(params=["linux", "libos"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine function on a loop of its own; all TCP endpoints of it are on one side."""
    loops: list[Any] = []

    def make() -> asyncio.AbstractEventLoop:
        loop = asyncio.SelectorEventLoop() if request.param == "linux" else libos_asyncio.new_event_loop()
        loops.append(loop)
        return loop

    def run_on(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        with asyncio.Runner(loop_factory=make) as runner:
            try:
                return runner.run(asyncio.wait_for(main(), PATIENCE_S))
            finally:
                loop = loops[-1]
                if request.param == "libos":
                    assert loop.endpoints().ours >= loop.endpoints().linux, "the test was to run on libos"

    return run_on


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate and its key, PEM files."""
    return make_certificate(tmp_path_factory.mktemp("tls"), "DNS:corelane.test")


@pytest.fixture
def tls(certificate: tuple[Path, Path]) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(the server's, the client's)"""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*certificate)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(certificate[0])
    return server, client
