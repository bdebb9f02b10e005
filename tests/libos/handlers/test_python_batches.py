"""Plain Python handlers of batches: what they are given and return, and what a mistake costs."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cltest import wait_until
from cltest.packets import Host

from corelane import libos
from corelane.runtime.errors import CorelaneError

Serve = Callable[..., Any]

SERVER, CLIENT = Host("02:00:00:00:00:01", "10.0.0.1"), Host("02:00:00:00:00:02", "10.0.0.2")
LONG_US = 2**32 - 1  # over an hour


def _request(payload: bytes, sport: int) -> bytes:
    return CLIENT.datagram(SERVER, payload, sport, 9000)


def _served(serve: Serve, function: Callable[..., Any], n: int) -> Any:
    """That function, with the requests of a batch of n, each of its number from a port of its own."""
    handler = libos.udp(9000, batch=n, wait_us=LONG_US, compiled=False)(function)
    served = serve(handler)
    served.send(*[_request(bytes([i]) * (i + 1), 5000 + i) for i in range(n)])
    return served, handler


def test_a_batch_comes_as_a_list_and_is_answered_by_one(serve: Serve) -> None:
    seen = []

    def scores(requests):  # type: ignore[no-untyped-def]
        seen.append([bytes(request) for request in requests])
        assert all(request.readonly for request in requests)
        first = np.array([request[0] for request in requests])
        return [None if i == 1 else bytes(request) + bytes([first.sum()]) for i, request in enumerate(requests)]

    served, handler = _served(serve, scores, 4)
    got = {d.dport: d.payload for d in served.datagrams(3)}
    assert seen == [[b"\0", b"\1\1", b"\2\2\2", b"\3\3\3\3"]]
    assert got == {5000: b"\0\6", 5002: b"\2\2\2\6", 5003: b"\3\3\3\3\6"}, "None is no reply"
    net = served.settled(lambda s: s.net["unanswered"] == 1).net
    assert (net["batches"], net["batched"], net["handler_errors"]) == (1, 4, 0)
    assert handler.counters == {"errors": 0, "kept_views": 0}


def test_rows_of_an_array_are_replies(serve: Serve) -> None:
    def doubled(requests):  # type: ignore[no-untyped-def]
        return np.array([[request[0], 2 * request[0]] for request in requests], np.uint8)

    served, _ = _served(serve, doubled, 3)
    assert {d.dport: d.payload for d in served.datagrams(3)} == {5000: b"\0\0", 5001: b"\1\2", 5002: b"\2\4"}


def test_a_reply_that_cannot_be_one_fails_its_request_alone(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    def wrong(requests):  # type: ignore[no-untyped-def]
        return [b"fine", 7, b"x" * 100_000, "text"]

    with caplog.at_level(logging.ERROR, "corelane.libos"):
        served, handler = _served(serve, wrong, 4)
        assert [d.payload for d in served.datagrams(1)] == [b"fine"]
        served.settled(lambda s: s.net["handler_errors"] == 3)
    assert handler.counters["errors"] == 3
    assert "the handler returned int for a request: return its reply as bytes" in caplog.text


@pytest.mark.parametrize(
    ("replies", "says"),
    [
        (lambda requests: requests[:1], "the handler returned 1 replies to 2 requests: return one for each"),
        (lambda requests: 1 // 0, "division by zero"),
        (lambda requests: 5, "no len()"),
    ],
)
def test_what_fails_fails_its_batch(
    serve: Serve, replies: Callable[..., Any], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "corelane.libos"):
        served, handler = _served(serve, lambda requests: replies(requests) if requests[0][0] == 0 else requests, 2)
        served.settled(lambda s: s.net["handler_errors"] == 2)
        assert says in caplog.text
        assert handler.counters["errors"] == 1
        served.send(_request(b"\1", 1), _request(b"\1", 2))
        assert len(served.datagrams(2)) == 2, "the next one is fine, and requests may be replies"


def test_a_view_that_is_kept_is_told(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    kept: list[Any] = []

    def keeps(requests):  # type: ignore[no-untyped-def]
        kept.extend((requests[0], pickle.PickleBuffer(requests[1])))
        return requests

    with caplog.at_level(logging.ERROR, "corelane.libos"):
        served, handler = _served(serve, keeps, 2)
        served.datagrams(2)
        served.settled(lambda s: s.net["replied"] == 2)
    assert handler.counters["kept_views"] == 1
    assert "keeps a view" in caplog.text
    with pytest.raises(ValueError, match="released"):
        kept[0][0]
    kept.clear()


def test_the_limit_holds_for_python_too(serve: Serve) -> None:
    handler = libos.udp(9000, batch=8, limit_us=LONG_US, compiled=False)(lambda requests: requests)
    served = serve(handler)
    assert served.ask(b"hello") == b"hello"
    # It is measured until the answer is out, and so noted behind it.
    wait_until(lambda: served.runtime.batch_profile(9000).batches == 1, 60, lambda: "a batch to be measured")


def test_another_shape_is_one_clear_error() -> None:
    for function in (lambda request, reply: 1, lambda: b""):
        with pytest.raises(CorelaneError, match=r"write def handler\(requests\), which returns a list"):
            libos.udp(9000, batch=4, compiled=False)(function).prepare()

    async def late(requests):  # type: ignore[no-untyped-def]
        return requests

    with pytest.raises(CorelaneError, match="write a plain def"):
        libos.udp(9000, batch=4, compiled=False)(late).prepare()
