"""Collections of garbage on kthreads that run Python are written down where they stand still for them (collects.py)."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from typing import Any

from cltest.packets import Host

from corelane import libos
from corelane.drivers.nic.memory import memory_link
from corelane.libos._native import lib
from corelane.runtime.trace import Records, Segment

SERVER, CLIENT = Host("02:00:00:00:00:01", "10.0.0.1"), Host("02:00:00:00:00:02", "10.0.0.2")


@contextmanager
def traced(name: str) -> Any:
    """The segment of a runtime of ours, from now on."""
    (mine,) = [s for s in Segment.all_of_process(os.getpid()) if s.name == name]
    with mine:
        mine.skip()
        yield mine


def collections(records: Records) -> Any:
    return records.gaps[records.gaps["how"] == lib.CL_TRACE_GAP_COLLECTS]


def collects_if_asked(request: memoryview) -> bytes:
    if request[0] == 99:
        gc.collect()
    return bytes(request)


def test_in_a_handler_it_is_a_part_of_the_request(serve: Any) -> None:
    served = serve(libos.udp(9000, compiled=False)(collects_if_asked), name="collects", trace="full")
    with traced("collects") as segment:
        gc.disable()
        try:
            for byte in (1, 99, 1):
                assert served.ask(bytes([byte])) == bytes([byte])
            gc.collect()  # on a thread that has no kthread
        finally:
            gc.enable()
        served.runtime.stop()
        records = segment.read()
    (one,) = collections(records)
    assert one["n"] == 3, "of the oldest generation"
    assert one["gone"] == one["end"] - one["begin"]
    during = [m for m in records.messages if m["begin"] <= one["begin"] and one["end"] <= m["begin"] + m["sent"]]
    assert len(during) == 1
    assert during[0]["start"] + during[0]["begin"] <= one["begin"]


def test_of_a_loops_thread_it_is_between_turns(serve: Any) -> None:
    nic, end = memory_link((1, 1), ipv4=(SERVER.ip, CLIENT.ip), ipv4_prefix=24, mac=(SERVER.mac, CLIENT.mac))
    with nic, end, libos.Runtime(nic=nic, adopted=1, name="loop", poll="block", trace="full") as runtime:
        runtime.bind(libos.udp(9000, compiled=False)(collects_if_asked))
        runtime.start()
        runtime.turn()
        end.send([CLIENT.datagram(SERVER, b"1")])  # how it is traced holds from the first request on
        while runtime.turn():
            pass
        gc.disable()
        try:
            with traced("loop") as segment:
                gc.collect()
                while runtime.turn():
                    pass
                records = segment.read()
        finally:
            gc.enable()
    (one,) = collections(records)
    assert (one["kthread"], one["n"]) == (0, 3)
    others = records.gaps[records.gaps["how"] == lib.CL_TRACE_GAP_STAMPS]
    assert not ((others["begin"] < one["end"]) & (others["end"] > one["begin"])).any(), "told once"
