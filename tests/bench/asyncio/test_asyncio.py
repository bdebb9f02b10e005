"""What the asyncio benchmark makes of its rounds, and that its servers answer by every loop. No speed is asserted."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from cltest import netns_missing
from cltest.netns import skip_without_af_xdp

from corelane.bench.asyncio import alone, echo, entry, limiter, loops, places, server, start, web
from corelane.bench.asyncio.loops import OURS, STOCK, UVLOOP
from corelane.bench.asyncio.server import PORTS, PROTOCOLS, STREAMS
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session
from corelane.runtime.errors import CorelaneError

FORMS = (PROTOCOLS, STREAMS)
_numbers = itertools.count(10)


@pytest.fixture
def address() -> str:
    """An address of loopback that no other test of this process or of another one has."""
    pid = os.getpid()
    return f"127.{64 + (pid >> 14) % 128}.{(pid >> 6) % 256}.{pid % 64 * 4 + next(_numbers) % 4}"


@pytest.fixture(params=loops.BASELINES)
def loop(request: pytest.FixtureRequest) -> str:
    """Each loop on Linux' sockets."""
    name = str(request.param)
    if why := loops.missing(name):
        pytest.skip(why)
    return name


def cores() -> tuple[int, int]:
    cpus = sorted(os.sched_getaffinity(0))
    return cpus[0], cpus[-1]


def rates(**more: list[float]) -> dict[str, list[float]]:
    """Two rounds of the echo."""
    return {
        "asyncio, protocols": [50.0, 100.0],
        "uvloop, protocols": [100.0, 200.0],
        "uvloop, streams": [80.0, 0.0],
        "uvloop, protocols, kernel client": [100.0, 100.0],
        "ours, protocols": [300.0, 400.0],
        "ours, streams": [160.0, 160.0],
        "ours, protocols, kernel client": [110.0, 130.0],
        "ours, protocols, memory NIC": [800.0, 1000.0],
        "ours, streams, memory NIC": [400.0, 500.0],
        "numba handler, memory NIC": [4000.0, 6000.0],
        "limiter, numba handler, memory NIC": [3000.0, 3200.0],
        "limiter, our loop, memory NIC": [500.0, 400.0],
        "reflector, memory NIC": [8000.0, 9000.0],
        "echo in C on our TCP": [400.0, 1000.0],
    } | more


def test_figures_pair_the_rounds() -> None:
    with Session("asyncio", seconds=0.02) as session:
        echo._figures(session, rates(), [2.5e6, 1e6])
    figures = session.document()["figures"]
    assert figures["asyncio.over_uvloop"]["value"] == 2.5
    assert figures["asyncio.over_uvloop"]["beside"] == {
        "over the stock loop": 5.0,
        "with a kernel client": pytest.approx(1.2),
        "bound: the echo in C on our TCP": 4.5,
        "that echo, and a Python entry for each request": pytest.approx((2.0 + 2.5) / 2),
    }
    assert figures["asyncio.streams_over_uvloop"]["value"] is None
    assert "answered nothing" in figures["asyncio.streams_over_uvloop"]["reason"]
    assert figures["asyncio.over_uvloop_memory"]["value"] == 6.5
    assert figures["embed.numba_over_asyncio"]["value"] == 7.0
    assert figures["embed.numba_over_asyncio"]["beside"] == {
        "the echo": 5.5,
        "the echo, over our loop's streams": 11.0,
        "bound by client and link: a reflector of segments": 19.25,
    }


def test_what_was_not_measured_says_why() -> None:
    with Session("asyncio", seconds=0.02) as session:
        session.skip("uvloop, protocols", "it is not there")
        echo._figures(session, rates(**{"uvloop, protocols": []}), [])
        web.conclude(session, {OURS: [1.0], STOCK: [1.0]})
    session.finish(echo.FIGURES)
    figures = session.document()["figures"]
    assert set(figures) == set(echo.FIGURES)
    assert figures["asyncio.over_uvloop"]["value"] is None
    assert figures["asyncio.over_uvloop"]["reason"] == "uvloop, protocols: it is not there"
    assert figures["embed.numba_over_asyncio"]["value"] == 7.0


def test_uvicorn_is_compared_by_rounds() -> None:
    with Session("asyncio", seconds=0.02) as session:
        rounds = {OURS: [3.0, 4.0], UVLOOP: [2.0, 2.0], STOCK: [1.0, 4.0], web.ALONE: [5.0, 6.0]}
        web.conclude(session, rounds)
    figure = session.document()["figures"]["asyncio.http_over_uvloop"]
    beside = {"over the stock loop": 2.0, "bound: uvicorn without a network": 2.75}
    assert (figure["value"], figure["beside"]) == (1.75, beside)


def test_uvicorn_answers_without_a_network() -> None:
    if why := server.web_missing() or loops.missing(OURS):
        pytest.skip(why)
    assert alone.rate(cores()[1], 3, 0.0) > 0


def test_each_message_is_an_entry(tmp_path: Path) -> None:
    extension = entry.compile_into(tmp_path)
    protocols = [server.Echo() for _ in range(3)]
    transports = [extension.Transport() for _ in protocols]
    for protocol, transport in zip(protocols, transports, strict=True):
        protocol.connection_made(transport)
    extension.enter(tuple(protocol.data_received for protocol in protocols), 7, 10)
    assert [transport.counts() for transport in transports] == [(4, 28), (3, 21), (3, 21)]
    with pytest.raises(ValueError, match="some callables"):
        extension.enter((), 7, 10)
    with pytest.raises(ZeroDivisionError):
        extension.enter((lambda _: 1 // 0,), 7, 10)
    with pytest.raises(TypeError, match="takes bytes"):
        transports[0].write("text")
    before = os.sched_getaffinity(0)
    assert entry.message_ns(extension, cores()[1], 4, 64, 0.0) > 0
    assert os.sched_getaffinity(0) == before


def exchange(address: str, port: int, asked: bytes) -> Iterator[bytes]:
    """What comes back, piece by piece."""
    with socket.create_connection((address, port), timeout=60) as connection:
        connection.sendall(asked)
        while piece := connection.recv(65536):
            yield piece


def test_an_echo_answers_in_both_forms(loop: str, address: str) -> None:
    with server.Server(loop, server.ECHO, address=address):
        for form in FORMS:
            got = b""
            for piece in exchange(address, PORTS[form], b"hello" * 1000):
                got += piece
                if len(got) >= 5000:
                    break
            assert got == b"hello" * 1000


def test_uvicorn_answers(loop: str, address: str) -> None:
    if why := server.web_missing():
        pytest.skip(why)
    with server.Server(loop, server.WEB, address=address):
        asked = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        answer = b"".join(exchange(address, PORTS[server.WEB], asked))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n" + server.BODY)


@pytest.mark.soak(takes_s=10)  # compiles it
def test_the_compiled_echo_answers() -> None:
    with places.numba_on_memory(cores()) as measure:
        assert_answers(lambda: measure(1.0, 0.05))


@pytest.mark.soak(short=True, takes_s=4)
@pytest.mark.parametrize("name", limiter.ARMS)
def test_the_limiter_answers(name: str) -> None:
    """The client compares each answer with what the worked example has to say."""
    if why := limiter.missing() or loops.missing(OURS):
        pytest.skip(why)
    with limiter.ARMS[name](cores()) as measure:
        assert_answers(lambda: measure(1.0, 0.05))


def assert_answers(ask: Callable[[], Point]) -> None:
    """Some answers, all of them right. A loaded machine may give a run no time at all."""
    for _ in range(100):
        point = ask()
        assert "wrong" not in point.extra
        if point.answered:
            return
    pytest.fail("nothing was answered")


def skip_without_veth() -> None:
    if missing := netns_missing():
        pytest.skip(missing)
    skip_without_af_xdp()


def test_our_loop_answers_on_memory_links_in_both_forms_at_once() -> None:
    if why := loops.missing(OURS):
        pytest.skip(why)
    with contextlib.ExitStack() as stack:
        asks = [stack.enter_context(places.loop_on_memory(form, cores())) for form in FORMS]
        for measure in asks:
            assert_answers(partial(measure, 1.0, 0.05))


def test_client_and_link_are_asked_alone() -> None:
    with places.reflector_on_memory(cores()) as measure:
        assert_answers(lambda: measure(1.0, 0.05))


@pytest.mark.root
@pytest.mark.parametrize("loop", loops.ALL)
def test_a_server_answers_both_clients(loop: str) -> None:
    if why := loops.missing(loop):
        pytest.skip(why)
    skip_without_veth()
    with contextlib.ExitStack() as stack:
        served = places.Served(stack, cores(), loop, server.ECHO)
        for form in FORMS:
            for ask in (served.ask, served.ask_by_kernel):
                assert_answers(partial(ask, PORTS[form], 0.0, 0.1))
        assert served.busy_s() > 0


@pytest.mark.root
@pytest.mark.soak(takes_s=10)
def test_an_application_answers_after_a_start() -> None:
    if missing := netns_missing():
        pytest.skip(missing)
    with contextlib.ExitStack() as stack:
        starts = start.Starts(stack)
        for at_once in (False, True):
            assert starts.start(at_once=at_once) > 0


def test_an_application_that_never_answers_is_an_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "PATIENCE_S", 0.01)
    with pytest.raises(CorelaneError, match="nobody answered"):
        start.ask(address, 9)
