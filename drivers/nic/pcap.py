"""Recording any NIC's traffic to a pcap file, and replaying a file as a NIC. drivers/nic/pcap.h says how."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ...runtime.clock import Clock
from ...runtime.errors import CorelaneError
from ...runtime.typed import typed
from .._native import ffi, lib
from ..device import check
from .nic import Nic, mac_to_bytes


@dataclass(frozen=True, slots=True)
class PcapCounts:
    """recorded: frames in the file or on their way; missed: the recorder could not follow; written: in the file."""

    recorded: int
    missed: int
    written: int
    file_bytes: int
    failed_errno: int


@dataclass(frozen=True, slots=True)
class ReplayCounts:
    """in_file: frames of the file; too_long, cut: of those, left out; delivered: over all loops."""

    in_file: int
    delivered: int
    loops_done: int
    too_long: int
    cut: int


class PcapNic(Nic):
    """Records what the NIC below receives and sends. It owns that NIC, and closes it."""

    @typed("record a NIC")
    def __init__(self, nic: Nic, path: str | Path, *, snap_bytes: int = 0, ring_bytes: int = 0) -> None:
        """Wrap `nic` and write to `path`, which is emptied first.

        snap_bytes: keep only so many bytes of each frame (0: all). ring_bytes: memory between polling thread and
        writer, for each queue and direction; a power of two, 64 KiB to 1 GiB (0: 1 MiB). Raises CorelaneError if the
        file cannot be written or a value is outside its limits; `nic` then remains the caller's.
        """
        name = ffi.new("char[]", os.fsencode(path))
        config = ffi.new("struct cl_pcap_config *")
        config.path, config.snap_bytes, config.ring_bytes = name, snap_bytes, ring_bytes
        out, err = ffi.new("struct cl_nic **"), ffi.new("char[256]")
        check(lib.cl_pcap_nic_new(nic.ptr, config, out, err), err, "pcap NIC")
        super().__init__(out[0], keep=(nic,))
        nic.release()

    def counts(self) -> PcapCounts:
        """How far the recording is."""
        out = ffi.new("struct cl_pcap_counts *")
        lib.cl_pcap_counts(self.ptr, out)
        return PcapCounts(*(int(getattr(out, name)) for name in PcapCounts.__dataclass_fields__))

    def flush(self) -> None:
        """Return when all that was recorded before the call is in the file. Raises CorelaneError if writing failed."""
        rc = lib.cl_pcap_flush(self.ptr)
        if rc < 0:
            raise CorelaneError(f"the recording stopped: {os.strerror(-rc)}; free some space and record anew")


class ReplayNic(Nic):
    """A NIC with one queue that receives the frames of a pcap file."""

    @typed("replay a recording")
    def __init__(
        self,
        path: str | Path,
        *,
        speed: float = 1.0,
        loops: int = 1,
        buffers: int = 0,
        mac: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Replay `path`.

        speed: 1 as recorded, 2 twice as fast, 0 at once. loops: how often, 0 for ever. mac: own address, by default the
        destination of the first frame. clock: by which it replays, None: the machine's. Raises CorelaneError if the
        file cannot be read or is no pcap file of Ethernet frames.
        """
        name = ffi.new("char[]", os.fsencode(path))
        config = ffi.new("struct cl_replay_config *")
        config.path, config.speed, config.loops, config.buffers = name, speed, loops, buffers
        if clock is not None:
            config.clock = clock.ptr
        if mac is not None:
            ffi.memmove(config.mac, mac_to_bytes(mac), 6)
        out, err = ffi.new("struct cl_nic **"), ffi.new("char[256]")
        check(lib.cl_replay_nic_new(config, out, err), err, "replay NIC")
        super().__init__(out[0], keep=(clock,))

    @property
    def done(self) -> bool:
        """Whether all loops are over."""
        return bool(lib.cl_replay_done(self.ptr))

    def counts(self) -> ReplayCounts:
        """How far the replay is."""
        out = ffi.new("struct cl_replay_counts *")
        lib.cl_replay_counts(self.ptr, out)
        return ReplayCounts(*(int(getattr(out, name)) for name in ReplayCounts.__dataclass_fields__))
