"""What a NIC sees of requests, and by how much the records of their stages are off."""

from __future__ import annotations

import numpy

from corelane.bench.trace.sums import errors_ns
from corelane.bench.trace.watching import Wire
from corelane.drivers.nic.memory import memory_link
from corelane.runtime._native import ffi, lib
from corelane.runtime.layout import dtype

DATAGRAM = bytes(12) + b"\x08\0" + bytes(9) + b"\x11" + bytes(40)
OTHER = bytes(12) + b"\x08\x06" + bytes(50)


def test_datagrams_that_come_and_go_are_pairs_and_others_are_not() -> None:
    client, server = memory_link()
    with client, server:
        wire = Wire(server, 4)
        for frame in (DATAGRAM, OTHER, DATAGRAM):
            assert client.send(frame) == 1
        assert len(server.recv(3)) == 3
        assert wire.take() is None, "two requests, and no answer"
        for _ in range(2):
            client.send(DATAGRAM)
            assert server.recv() == [DATAGRAM]
            assert server.send([OTHER, DATAGRAM]) == 2
        pairs = wire.take()
        assert pairs is not None
        came, went = pairs
        assert len(came) == len(went) == 2
        assert (went >= came).all()
        assert came[1] >= went[0]
        again = wire.take()
        assert again is not None
        assert len(again[0]) == 0
        for _ in range(5):
            client.send(DATAGRAM)
            server.recv()
            server.send(DATAGRAM)
        assert wire.take() is None, "more than there is room for"
        wire.close()
        client.send(DATAGRAM)
        assert server.recv() == [DATAGRAM]


def test_the_error_is_the_difference_in_ns() -> None:
    messages = numpy.zeros(3, dtype(ffi, "struct cl_trace_message"))
    messages["kind"] = lib.CL_TRACE_MESSAGE
    messages["sent"] = [1000, 2000, 3000]
    came = numpy.array([10**15, 10**15 + 500, 10**15 + 900], numpy.uint64)
    went = came + numpy.array([1000, 2020, 2900], numpy.uint64)
    assert list(errors_ns(messages, came, went, 2 * 10**9)) == [0.0, 10.0, 50.0]
