"""The engine and its clients from Python: for tests and tools, not for the data path."""

from __future__ import annotations

from ...runtime.closing import Closing
from ...runtime.errors import CorelaneError, check
from ...runtime.typed import typed
from .._native import ffi, lib


class Engine(Closing):
    """Databases of typed values in bounded memory (apps/resp/engine.h). Close it, or use it as a context manager.

    memory_bytes: all that values and clients may take, 1 MiB at least; policy: maxmemory-policy; password: what AUTH
    asks for, "" for none; manual_ms: a manual clock that stands at that time in ms until it is moved, 0 for the wall
    clock; seed: of hashes and random choices, 0 for random ones. Raises CorelaneError when the settings do not do.
    """

    @typed("make a RESP engine")
    def __init__(
        self,
        memory_bytes: int = 64 << 20,
        *,
        policy: str = "noeviction",
        password: str = "",
        manual_ms: int = 0,
        seed: int = 0,
    ) -> None:
        self._ptr = ffi.NULL
        texts = [ffi.new("char[]", policy.encode()), ffi.new("char[]", password.encode())]
        settings = ffi.new(
            "struct cl_resp_settings *",
            {
                "memory_bytes": memory_bytes,
                "seed": seed,
                "manual_ms": manual_ms,
                "policy": texts[0],
                "password": texts[1] if password else ffi.NULL,
            },
        )
        out, err = ffi.new("struct cl_resp **"), ffi.new("char[256]")
        check(lib.cl_resp_new(settings, out, err), f"make a RESP engine of {memory_bytes} bytes", err)
        self._ptr = out[0]

    @property
    def ptr(self) -> object:
        """struct cl_resp *"""
        return self._ptr

    def client(self, peer: str = "127.0.0.1:1", own: str = "127.0.0.1:6379") -> Client:
        """A client of its own, without a port. Raises CorelaneError if there are maxclients."""
        ptr = lib.cl_resp_connect(self._ptr, peer.encode(), own.encode())
        if ptr == ffi.NULL:
            raise CorelaneError("connect to a RESP engine", "max number of clients reached", "close one first")
        return Client(ptr)

    def tick(self) -> int:
        """Look at what time has brought. Returns in how many ms something has to happen next."""
        return int(lib.cl_resp_tick(self._ptr))

    def move(self, ms: int) -> None:
        """Move a manual clock."""
        lib.cl_resp_move(self._ptr, ms)

    def propagate(self) -> None:
        """From here on keep what writes do, for `units`."""
        lib.cl_resp_propagate(self._ptr)

    def units(self) -> bytes:
        """What writes have done since the last call, as commands that do the same again (apps/resp/propagate.h)."""
        return self.take()[0]

    def hold(self) -> None:
        """From here on replies wait until `durable` says that what they tell of is. After `propagate`."""
        lib.cl_resp_hold(self._ptr)

    def confirm(self) -> None:
        """As `hold`, and replies without a unit wait for a number of their own, which `take` says."""
        lib.cl_resp_confirm(self._ptr)

    def elsewhere(self, error: str, host: str = "", port: int = 0) -> None:
        """Answer that error to what is not about the connection or this server; "": do it again."""
        lib.cl_resp_elsewhere(self._ptr, error.encode(), host.encode(), port)

    def take(self) -> tuple[bytes, int]:
        """As `units`, and the number of the last unit ever."""
        length, unit = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        at = lib.cl_resp_units(self._ptr, length, unit)
        return (bytes(ffi.buffer(at, length[0])) if at != ffi.NULL else b""), int(unit[0])

    def durable(self, unit: int) -> None:
        """Units up to that one are durable."""
        lib.cl_resp_durable(self._ptr, unit)

    def fail(self, error: int) -> None:
        """The log takes nothing any more, by that errno."""
        lib.cl_resp_failed(self._ptr, error)

    def log_room(self, size: int, room: int) -> None:
        """How many bytes the log is long, and how many more it may take."""
        lib.cl_resp_log_room(self._ptr, size, room)

    def rewrite(self) -> None:
        """Begin a rewrite; all units were taken."""
        lib.cl_resp_rewrite(self._ptr)

    def rewrite_step(self, size: int) -> bool:
        """Put about so many bytes of keys. True: all were put."""
        return bool(lib.cl_resp_rewrite_step(self._ptr, size))

    def apply(self, units: bytes) -> None:
        """Do what another engine's `units` say. Raises CorelaneError if they are none, or do not fit the state."""
        err = ffi.new("char[256]")
        check(lib.cl_resp_apply(self._ptr, units, len(units), err), "apply units to a RESP engine", err)

    def used(self) -> tuple[int, int]:
        """Bytes in use, and how many may be."""
        limit = ffi.new("uint64_t *")
        used = int(lib.cl_resp_used(self._ptr, limit))
        return used, int(limit[0])

    def check(self) -> None:
        """Walk the invariants; raises CorelaneError with the first that does not hold."""
        err = ffi.new("char[256]")
        if lib.cl_resp_check(self._ptr, err):
            raise CorelaneError("check a RESP engine", ffi.string(err).decode(), "report it: this is a bug")

    def close(self) -> None:
        """Free it, with its clients. Closing twice is allowed."""
        ptr, self._ptr = self._ptr, ffi.NULL
        lib.cl_resp_delete(ptr)


class Client:
    """One connection to an engine, by bytes. It ends with its engine."""

    def __init__(self, ptr: object) -> None:
        self._ptr = ptr

    def feed(self, data: bytes) -> int:
        """Give it bytes. Returns how many were taken."""
        return int(lib.cl_resp_feed(self._ptr, data, len(data)))

    def take(self) -> bytes:
        """Its replies so far."""
        parts, length = [], ffi.new("uint64_t *")
        while (at := lib.cl_resp_out(self._ptr, length)) != ffi.NULL:
            parts.append(bytes(ffi.buffer(at, length[0])))
            lib.cl_resp_taken(self._ptr, length[0])
        return b"".join(parts)

    def exchange(self, data: bytes) -> bytes:
        """Give it bytes, and take what it answers; more is given as replies are taken."""
        out = []
        while data:
            data = data[self.feed(data) :]
            out.append(self.take())
            if not out[-1] and data and not self.ends:
                break
        return b"".join(out)

    def call(self, *words: bytes | str | int | float) -> bytes:
        """One command, as a client library would send it."""
        return self.exchange(encode(*words))

    @property
    def ends(self) -> int:
        """0: it stays; 1: it ends when its replies are taken; 2: it ends now."""
        return int(lib.cl_resp_ends(self._ptr))

    def close(self) -> None:
        """Disconnect. Not after its engine was closed."""
        ptr, self._ptr = self._ptr, ffi.NULL
        if ptr != ffi.NULL:
            lib.cl_resp_disconnect(ptr)


def encode(*words: bytes | str | int | float) -> bytes:
    """A command as an array of bulks."""
    parts = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)
