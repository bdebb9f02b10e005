"""The floor of the key-value store on a memory link: lines.h, with the same generator.

with Lines(traffic, cores) as floor:
    point = floor.measure(1e6, 0.5)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ...drivers.nic.loadgen.loadgen import Loadgen, Memcached, Source
from ...runtime.closing import Closing
from ...runtime.errors import check
from .._native import ffi, lib
from ..harness import rest, rig
from ..harness.load import Load
from ..harness.openloop import Point


class Lines(Closing):
    """A server that touches the lines of a GET, on cores[1], loaded over a memory link from cores[0].

    Its thread spins, so it runs for the length of one measurement only. traffic: keys of KEY_BYTES. client, nic: the
    ends of the link.
    """

    KEY_BYTES = int(lib.CL_KV_LINES_KEY)

    def __init__(self, traffic: Memcached, cores: tuple[int, int]) -> None:
        self._cpu = cores[1]
        with contextlib.ExitStack() as undo:
            self.client, self.nic = undo.enter_context(rig.linked())
            out = ffi.new("struct cl_kv_lines **")
            check(lib.cl_kv_lines_new(traffic.keys, traffic.value_bytes, out), "make the floor of a key-value store")
            self._ptr = out[0]
            undo.callback(lib.cl_kv_lines_delete, self._ptr)
            generator = Loadgen(
                traffic,
                source=Source(ip=rig.CLIENT_IP),
                server_ip=rig.SERVER_IP,
                server_mac=self.nic.mac,
                server_port=1,
                checksum=True,
            )
            undo.callback(generator.close)
            generator.start_client(self.client, cpu=cores[0])
            self.load = Load(generator)
            self._undo = undo.pop_all()

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Answer, in this block. CorelaneError if the thread cannot start."""
        err = ffi.new("char[256]")
        nic = ffi.cast("struct cl_nic *", self.nic.ptr)
        check(lib.cl_kv_lines_start(self._ptr, nic, self._cpu, err), "start the floor of a key-value store", err)
        try:
            yield
        finally:
            lib.cl_kv_lines_stop(self._ptr)

    def measure(self, rate: float, seconds: float) -> Point:
        """One point."""
        rest.demand("a server that spins")
        with self.serving():
            return self.load.measure(rate, seconds)

    @property
    def counts(self) -> tuple[int, int]:
        """(requests answered, frames that were none)."""
        pair = ffi.new("uint64_t[2]")
        lib.cl_kv_lines_counts(self._ptr, pair, pair + 1)
        return int(pair[0]), int(pair[1])

    def close(self) -> None:
        """Free everything. Closing twice is allowed; `counts` ends here."""
        self._undo.close()
