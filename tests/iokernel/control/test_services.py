"""What an application says of its services is in the statistics; what it may not say is not, and harms nobody."""

from __future__ import annotations

import json
import mmap
import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from cltest.control import connect, hello, kind_of

from corelane.iokernel import Iokernel
from corelane.iokernel._native import ffi, lib
from corelane.runtime.hist import Hist

PAGE = int(lib.CL_LATENCY_PAGE)
SERVICES = int(lib.CL_LATENCY_SERVICES)


class Application:
    """One that is attached, and writes into the latency part of its arena what it likes."""

    def __init__(self, io: Iokernel) -> None:
        self.io, self._sock = io, connect(io.socket_path)
        self._sock.sendall(hello(b"teller"))
        message, self._fds, _flags, _address = socket.recv_fds(self._sock, 4096, lib.CL_CONTROL_FDS)
        assert kind_of(message) == lib.CL_CONTROL_ACCEPT
        layout = ffi.from_buffer("struct cl_control_accept *", message).layout
        self.n_kthreads = int(layout.n_kthreads)
        bytes_ = (self.n_kthreads * SERVICES + 1) * PAGE
        self._map = mmap.mmap(self._fds[0], bytes_, offset=layout.total_bytes - bytes_)
        self._base = ffi.from_buffer(self._map)
        self.names = ffi.cast("struct cl_latency_names *", self._base)
        self._pages = ffi.cast("struct cl_latency *", self._base + PAGE)

    def page(self, kthread: int, service: int) -> Any:
        return self._pages[kthread * SERVICES + service]

    def name(self, *names: bytes) -> None:
        for i, name in enumerate(names):
            self.names.service[i].text = name
        self.names.n = len(names)

    @property
    def services(self) -> list[dict[str, Any]]:
        (app,) = self.io.stats()["apps"]
        found: list[dict[str, Any]] = app["services"]
        return found

    def close(self) -> None:
        self._sock.close()
        for fd in self._fds:
            os.close(fd)


@pytest.fixture
def application(socket_path: str) -> Iterator[Application]:
    with Iokernel(socket_path, poll="block") as io:
        made = Application(io)
        yield made
        made.close()


def test_one_that_says_nothing_has_none(application: Application) -> None:
    assert application.services == []


def test_kthreads_are_summed(application: Application) -> None:
    application.name(b"udp:9000", b"tcp:80")
    bucket = int(lib.cl_hist_bucket(Hist(lib.CL_LATENCY_DIGITS, lib.CL_LATENCY_LIMIT_NS).ptr, 5000))
    for k in range(application.n_kthreads):
        page = application.page(k, 0)
        page.requests, page.hist.sum, page.counts[bucket] = 100, 5000 * 10, 10
    udp, tcp = application.services
    n = 10 * application.n_kthreads
    assert (udp["name"], udp["requests"], udp["latency"]["n"]) == ("udp:9000", 10 * n, n)
    assert udp["latency"]["sum_ns"] == 5000 * n
    assert 5.0 <= udp["latency"]["p999_us"] <= 5.0 * 1.07
    assert (tcp["name"], tcp["requests"], tcp["latency"]["n"]) == ("tcp:80", 0, 0)


def test_names_that_may_not_be_are_left_out(application: Application) -> None:
    application.name(b"good", b"\xff\xfe", b"", b"a b", b'a"b', b"x" * 32)
    assert [service["name"] for service in application.services] == ["good", "x" * 31]


def test_a_name_is_told_once(application: Application) -> None:
    application.name(b"udp:1", b"udp:2", b"udp:1", b"udp:1")
    application.page(0, 0).requests, application.page(0, 2).requests = 5, 7
    assert [(service["name"], service["requests"]) for service in application.services] == [("udp:1", 5), ("udp:2", 0)]


@pytest.mark.parametrize("n", [SERVICES + 1, 2**32 - 1])
def test_a_number_of_services_that_cannot_be_is_bounded(application: Application, n: int) -> None:
    application.name(*[b"s%d" % i for i in range(SERVICES)])
    application.names.n = n
    assert len(application.services) == SERVICES


def test_garbage_is_bounded_and_can_be_told(application: Application) -> None:
    application.name(b"liar")
    for k in range(application.n_kthreads):
        ffi.memmove(ffi.addressof(application.page(k, 0)), b"\xff" * PAGE, PAGE)
    (liar,) = application.services
    most = int(lib.CL_IO_SERVICE_MOST) * application.n_kthreads
    assert liar["requests"] == liar["latency"]["sum_ns"] == most
    assert liar["latency"]["n"] == most * int(lib.CL_LATENCY_BUCKETS)
    assert json.loads(json.dumps(liar)) == liar
