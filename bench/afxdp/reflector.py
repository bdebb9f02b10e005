"""Python face of the raw AF_XDP reflector (bench/afxdp/reflector.h), the floor that `corelane bench afxdp` compares
with."""

from __future__ import annotations

import contextlib
import socket
from types import TracebackType
from typing import Self

from ...drivers.bpf import loader, steer
from ...drivers.bpf.object import read_object
from ...drivers.nic.af_xdp.af_xdp import xdp_mode
from ...runtime.errors import CorelaneError
from .._native import ffi, lib


class Reflector:
    """Answers every UDP datagram that arrives on one queue of an interface, from a pinned spinning thread.

    ifname: an interface of the calling thread's network namespace. cpu: where the thread runs. mode: native, generic
    or auto XDP. need_wakeup, busy_poll_us: as for AfXdp. chunks: frames kept for receiving. checks: verify the
    checksums of what comes, drop what is wrong, and make those of answers. Raises CorelaneError.
    """

    def __init__(
        self,
        ifname: str,
        *,
        cpu: int,
        queue: int = 0,
        mode: str = "auto",
        need_wakeup: bool = True,
        chunks: int = 512,
        ring_slots: int = 1024,
        busy_poll_us: int = 0,
        checks: bool = False,
    ) -> None:
        name = ffi.new("char[]", ifname.encode())
        config = ffi.new("struct cl_xsk_config *")
        config.ifname = name
        config.rx_size = config.tx_size = config.fill_size = ring_slots
        config.copy_mode, config.need_wakeup = lib.CL_XSK_AUTO, need_wakeup
        config.busy_poll_us, config.bind_deadline_ms = busy_poll_us, 2000
        out, err = ffi.new("struct cl_reflector **"), ffi.new("char[256]")
        with contextlib.ExitStack() as undo:
            program = loader.load(read_object(steer.steer_object("raw")))
            undo.callback(program.close)
            if lib.cl_reflector_new(config, queue, chunks, checks, cpu, out, err) < 0:
                raise CorelaneError(f"reflector on {ifname}: {ffi.string(err).decode(errors='replace')}")
            self._ptr = out[0]
            undo.callback(lib.cl_reflector_delete, self._ptr)
            program.maps["xsks"].update(queue, lib.cl_reflector_fd(self._ptr))
            link = loader.attach(program.program_fd, socket.if_nametoindex(ifname), xdp_mode(ifname, mode))
            undo.callback(link.close)
            self.mode = link.mode
            self._undo = undo.pop_all()

    @property
    def counts(self) -> tuple[int, int]:
        """(datagrams reflected, other frames dropped)."""
        pair = ffi.new("uint64_t[2]")
        lib.cl_reflector_counts(self._ptr, pair, pair + 1)
        return int(pair[0]), int(pair[1])

    def time_doorbells(self) -> None:
        """From now on take the time of each doorbell, the system call that sends; not while latency is measured."""
        lib.cl_reflector_time_doorbells(self._ptr)

    @property
    def doorbells_ns(self) -> list[float]:
        """The times of the last doorbells, at most 4096."""
        out = ffi.new("double[4096]")
        return [float(v) for v in out[0 : lib.cl_reflector_doorbells(self._ptr, out, 4096)]]

    def close(self) -> None:
        """Detach, stop the thread, free everything. May be called twice; `counts` ends here."""
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
