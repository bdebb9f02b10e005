"""Loads an eBPF object: creates its maps, relocates, has the kernel verify it, attaches it by a link.

    loaded = load(read_object("mine.o"))
    loaded.maps["xsks"].update(0, fd)
    with attach(loaded.program_fd, ifindex, mode="auto") as link: ...

Errors say what failed, why, and what to do; a rejection by the verifier carries its log.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from .asm import PSEUDO_MAP_FD
from .elf import MapDef
from .object import BpfObject, Program, Relocation

PSEUDO_MAP_VALUE, PSEUDO_CALL = 2, 1
_LD_IMM64, _CALL = 0x18, 0x85

# enum bpf_map_type of linux/bpf.h
HASH, ARRAY, PERCPU_HASH, PERCPU_ARRAY, LPM_TRIE, XSKMAP = 1, 2, 5, 6, 11, 17
LRU_PERCPU_HASH = 10
NO_PREALLOC, RDONLY_PROG = 1 << 0, 1 << 7

# if_link.h
_XDP_FLAGS = {"auto": 0, "generic": 1 << 1, "native": 1 << 2, "offload": 1 << 3}

_LOG_BYTES = (1 << 16, 1 << 20, 1 << 24)


class BpfError(CorelaneError):
    """bpf(2) refused something. `log` is what the verifier wrote, if it did."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def _reason(code: int) -> str:
    name = errno.errorcode.get(-code, str(-code))
    text = f"{os.strerror(-code)} ({name})"
    if -code == errno.EPERM:
        return f"{text}: needs root, or CAP_BPF and CAP_NET_ADMIN; locked memory may be too small too (`ulimit -l`)"
    return text


def _word(value: int | bytes, size: int, what: str) -> bytes:
    data = value.to_bytes(size, "little") if isinstance(value, int) else bytes(value)
    if len(data) != size:
        raise CorelaneError(f"{what} of {len(data)} bytes for a map whose {what}s have {size}")
    return data


class Map:
    """A map of the kernel; owns its descriptor. Keys and values are bytes, or integers (little endian)."""

    def __init__(self, name: str, definition: MapDef) -> None:
        fd = lib.cl_bpf_map_create(
            definition.type,
            definition.key_size,
            definition.value_size,
            definition.max_entries,
            definition.flags,
            name.encode(),
        )
        if fd < 0:
            shape = f" ({definition})" if fd == -errno.EINVAL else ""
            raise BpfError(f"cannot create eBPF map {name!r}{shape}: {_reason(fd)}")
        self.name = name
        self.definition = definition
        self.fd = fd
        self._per_cpu = definition.type in (PERCPU_HASH, PERCPU_ARRAY, LRU_PERCPU_HASH)

    def _value_room(self) -> int:
        size = self.definition.value_size
        # The kernel copies one value a possible CPU, each padded to 8 bytes.
        return (size + 7) // 8 * 8 * int(lib.cl_bpf_possible_cpus()) if self._per_cpu else size

    def update(self, key: int | bytes, value: int | bytes) -> None:
        """Set map[key]. Raises BpfError (map full, no such index, a descriptor of the wrong kind...)."""
        k = _word(key, self.definition.key_size, "key")
        v = _word(value, self._value_room(), "value")
        code = lib.cl_bpf_map_update(self.fd, k, v, 0)
        if code < 0:
            raise BpfError(f"cannot set an entry of eBPF map {self.name!r}: {_reason(code)}")

    def lookup(self, key: int | bytes) -> bytes | None:
        """map[key], or None. Of a per-CPU map all CPUs' values one after another, each padded to 8 bytes."""
        k = _word(key, self.definition.key_size, "key")
        out = ffi.new("unsigned char[]", self._value_room())
        code = lib.cl_bpf_map_lookup(self.fd, k, out)
        if code == -errno.ENOENT:
            return None
        if code < 0:
            raise BpfError(f"cannot read eBPF map {self.name!r}: {_reason(code)}")
        return bytes(ffi.buffer(out))

    def sum(self, key: int) -> int:
        """The sum over the CPUs of an 8-byte counter of a per-CPU map."""
        data = self.lookup(key)
        return sum(v[0] for v in struct.iter_unpack("<Q", data)) if data else 0

    def delete(self, key: int | bytes) -> bool:
        """Remove map[key]; False if it was not there."""
        code = lib.cl_bpf_map_delete(self.fd, _word(key, self.definition.key_size, "key"))
        if code < 0 and code != -errno.ENOENT:
            raise BpfError(f"cannot delete from eBPF map {self.name!r}: {_reason(code)}")
        return bool(code == 0)

    def keys(self) -> Iterator[bytes]:
        """All keys; a snapshot only as far as nobody changes the map meanwhile."""
        key, following = ffi.NULL, ffi.new("unsigned char[]", self.definition.key_size)
        while (code := lib.cl_bpf_map_next_key(self.fd, key, following)) == 0:
            yield bytes(ffi.buffer(following))
            key, following = following, ffi.new("unsigned char[]", self.definition.key_size)
        if code != -errno.ENOENT:
            raise BpfError(f"cannot walk eBPF map {self.name!r}: {_reason(code)}")

    def close(self) -> None:
        """Drop our reference; programs that use the map keep theirs."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


@dataclass
class TestRun:
    """Outcome of BPF_PROG_TEST_RUN: the verdict (XDP_*), the frame after the program, mean time of a run."""

    __test__ = False  # not a test class, whatever its name

    verdict: int
    frame: bytes
    duration_ns: int


@dataclass
class Loaded:
    """A verified program and its maps; owns the descriptors."""

    name: str
    program_fd: int
    maps: dict[str, Map] = field(default_factory=dict)

    @property
    def program_id(self) -> int:
        """The kernel's id of the program (what `ip link` shows as prog/xdp id)."""
        return int(lib.cl_bpf_prog_id(self.program_fd))

    def test_run(self, frame: bytes, repeat: int = 1) -> TestRun:
        """Run the program on a frame (at least 14 bytes) inside the kernel. Raises BpfError."""
        room = len(frame) + 256
        out, size = ffi.new("unsigned char[]", room), ffi.new("uint32_t *", room)
        verdict, duration = ffi.new("uint32_t *"), ffi.new("uint32_t *")
        code = lib.cl_bpf_prog_test_run(self.program_fd, frame, len(frame), repeat, out, size, verdict, duration)
        if code < 0:
            raise BpfError(f"cannot run eBPF program {self.name!r} on {len(frame)} bytes: {_reason(code)}")
        return TestRun(verdict[0], bytes(ffi.buffer(out, size[0])), duration[0])

    def close(self) -> None:
        """Drop program and maps; an attached link keeps both alive."""
        if self.program_fd >= 0:
            os.close(self.program_fd)
            self.program_fd = -1
        for m in self.maps.values():
            m.close()

    def __enter__(self) -> Loaded:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class Link:
    """An attached program. Closing it, or the end of the process, detaches."""

    def __init__(self, fd: int, mode: str) -> None:
        self.fd = fd
        self.mode = mode

    def close(self) -> None:
        """Detach."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Link:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def load(source: BpfObject, program: str | None = None, overrides: dict[str, int] | None = None) -> Loaded:
    """Create the maps and load one program of the object.

    program: the function's name, needed when the object has several. overrides: {map name: max_entries}.
    Raises BpfError; a rejection has the verifier's log in `.log` and the end of it in the message.
    """
    chosen = source.program(program)
    maps: dict[str, Map] = {}
    try:
        for name, definition in source.maps.items():
            entries = (overrides or {}).get(name, definition.max_entries)
            d = definition
            maps[name] = Map(name, MapDef(d.type, d.key_size, d.value_size, entries, d.flags))
        for name, data in source.data.items():
            maps[name] = _variables(name, data)
        code = _relocate(source, chosen, maps)
        return Loaded(chosen.name, _load_program(source, chosen, code), maps)
    except BaseException:
        for m in maps.values():
            m.close()
        raise


def _variables(name: str, data: bytes) -> Map:
    """The one-element array that stands for a section of global variables."""
    constant = name.startswith(".rodata")
    m = Map(name, MapDef(ARRAY, 4, len(data), 1, RDONLY_PROG if constant else 0))
    try:
        m.update(0, data)
        if constant and (code := lib.cl_bpf_map_freeze(m.fd)) < 0:
            raise BpfError(f"cannot freeze eBPF map {name!r}: {_reason(code)}")
    except BaseException:
        m.close()
        raise
    return m


def _relocate(source: BpfObject, program: Program, maps: dict[str, Map]) -> bytes:
    """The program, with the functions of .text behind it if it calls any, all references filled in."""
    code = bytearray(program.text)
    base = len(code)
    calls = any(r.kind == "call" for r in program.relocations)
    if calls and source.text is not None:
        code += source.text.text
    jobs = [(0, r) for r in program.relocations]
    if calls and source.text is not None:
        jobs += [(base, r) for r in source.text.relocations]
    for shift, r in jobs:
        _apply(code, r.offset + shift, r, base, maps)
    return bytes(code)


def _apply(code: bytearray, at: int, r: Relocation, base: int, maps: dict[str, Map]) -> None:
    opcode, registers, _, _ = struct.unpack_from("<BBhi", code, at)
    if r.kind == "call":
        target = base + r.value
        if opcode != _CALL or not base <= target < len(code):
            raise CorelaneError(f"the call at byte {at} leads out of the program")
        struct.pack_into("<BBhi", code, at, opcode, PSEUDO_CALL << 4, 0, (target - at) // 8 - 1)
        return
    if opcode != _LD_IMM64 or at + 16 > len(code):
        raise CorelaneError(f"the instruction at byte {at} that refers to map {r.target!r} is no 64-bit load")
    source = PSEUDO_MAP_FD if r.kind == "map" else PSEUDO_MAP_VALUE
    struct.pack_into("<BBhi", code, at, opcode, registers & 0x0F | source << 4, 0, maps[r.target].fd)
    struct.pack_into("<BBhi", code, at + 8, 0, 0, 0, r.value if r.kind == "value" else 0)


def _load_program(source: BpfObject, program: Program, code: bytes) -> int:
    name, license, n = program.name.encode(), source.license.encode(), len(code) // 8
    fd = lib.cl_bpf_prog_load_xdp(code, n, license, name, ffi.NULL, 0)
    if fd >= 0:
        return int(fd)
    first, log = fd, ""
    if fd != -errno.EPERM:  # once more, for the verifier's words
        for room in _LOG_BYTES:
            buffer = ffi.new("char[]", room)
            fd = lib.cl_bpf_prog_load_xdp(code, n, license, name, buffer, room)
            if fd >= 0:
                return int(fd)
            log = ffi.string(buffer).decode(errors="replace").strip()
            if fd != -errno.ENOSPC:
                break
    tail = "\n".join(log.splitlines()[-12:])
    why = f"; the verifier says:\n{tail}" if tail else ""
    raise BpfError(f"{source.source}: the kernel refuses program {program.name!r}: {_reason(first)}{why}", log)


def attach(program_fd: int, ifindex: int, mode: str = "auto") -> Link:
    """Attach an XDP program to a device of the calling thread's namespace.

    mode: "native" (in the driver), "generic" (after the kernel made a packet of it; any device), "auto" (native, else
    generic). Raises BpfError: no such device, another program is there, the driver has no XDP.
    """
    if mode not in ("auto", "native", "generic"):
        raise CorelaneError(f"XDP mode {mode!r}: choose native, generic or auto")
    code = -errno.EOPNOTSUPP
    for tried in ("native", "generic") if mode == "auto" else (mode,):
        code = lib.cl_bpf_link_xdp(program_fd, ifindex, _XDP_FLAGS[tried])
        if code >= 0:
            return Link(int(code), tried)
        if code in (-errno.EBUSY, -errno.EEXIST, -errno.EPERM, -errno.ENODEV):
            break  # generic mode would fail, or hide the cause
    hints = {
        -errno.EBUSY: "another XDP program is attached; `ip link show` names it, `ip link set DEV xdp off` removes it",
        -errno.EEXIST: "another XDP program is attached in the other mode; `ip link set DEV xdp off` removes it",
        -errno.EOPNOTSUPP: "the driver has no native XDP; use mode='generic'",
        -errno.ENODEV: f"there is no device with index {ifindex} in this network namespace",
        -errno.EINVAL: "the device cannot take it (too large an MTU, or a lower device of a bond or bridge?)",
    }
    hint = f"; {hints[code]}" if code in hints else ""
    raise BpfError(f"cannot attach an XDP program in {mode} mode: {_reason(code)}{hint}")


def attached(ifindex: int) -> int:
    """Id of the XDP program attached to a device of the calling thread's namespace; 0 if there is none."""
    found = int(lib.cl_bpf_xdp_attached(ifindex))
    if found < 0:
        raise BpfError(f"cannot ask for the XDP program of device {ifindex}: {_reason(found)}")
    return found
