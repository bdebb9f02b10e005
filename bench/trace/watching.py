"""An echo server whose NIC is watched (wire.h), and the records that it writes of its requests."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...drivers.nic.loadgen.loadgen import Echo, Loadgen, Source
from ...drivers.nic.nic import Nic
from ...libos import Runtime, Trace
from ...runtime.errors import check
from ...runtime.trace import Records, Segment
from .._native import ffi, lib
from ..harness import rig
from ..harness.load import Load

if TYPE_CHECKING:
    import numpy

    Stamps = numpy.ndarray[Any, Any]

RECORDS = 1 << 17  # that are kept: more than a slice has
SETTLES_S = 0.01  # a mode holds from the next millisecond on; the last doorbell is rung


class Wire:
    """Stamps of what goes through a NIC: when each request had come, and when its answer had gone."""

    def __init__(self, nic: Nic, room: int) -> None:
        self._out, self._room = ffi.new("struct cl_bench_wire **"), room
        check(lib.cl_bench_wire_new(nic.ptr, room, self._out), "watch a NIC")
        self._stamps = ffi.new("uint64_t[]", 2 * room)

    def take(self) -> tuple[Stamps, Stamps] | None:
        """Since the last time, in the order in which they came. None: some were not answered."""
        import numpy

        came, went = self._stamps, self._stamps + self._room
        n = lib.cl_bench_wire_take(self._out[0], came, went)
        if n < 0:
            return None
        both = [numpy.frombuffer(ffi.buffer(part, 8 * n), numpy.uint64).copy() for part in (came, went)]
        return both[0], both[1]

    def close(self) -> None:
        """The NIC is as it was."""
        lib.cl_bench_wire_delete(self._out[0])


@dataclass(frozen=True)
class Watched:
    """A server that writes down all of its requests, what loads it, and what sees it."""

    load: Load
    wire: Wire
    segment: Segment

    def slice(self, rate: float, seconds: float) -> Records:
        """What is written down under a load."""
        time.sleep(SETTLES_S)
        self.segment.skip()
        self.wire.take()
        self.load.measure(rate, seconds)
        time.sleep(SETTLES_S)
        return self.segment.read()


@contextlib.contextmanager
def watched(bind: Callable[[Runtime], object], cores: tuple[int, int], port: int) -> Iterator[Watched]:
    """What `bind` gives a runtime on cores[1], loaded over a memory link from cores[0], all of it written down."""
    with contextlib.ExitStack() as stack:
        client_end, server_end = stack.enter_context(rig.linked())
        wire = Wire(server_end, RECORDS)
        stack.callback(wire.close)
        trace = Trace(mode="full", records=RECORDS)
        runtime, _ = stack.enter_context(rig.started(server_end, cores[1], bind, trace=trace))
        generator = Loadgen(
            Echo(),
            source=Source(ip=rig.CLIENT_IP),
            server_ip=rig.SERVER_IP,
            server_mac=runtime.mac,
            server_port=port,
            checksum=True,
        )
        stack.callback(generator.close)
        generator.start_client(client_end, cpu=cores[0])
        yield Watched(Load(generator), wire, stack.enter_context(Segment.of_process(os.getpid())))
