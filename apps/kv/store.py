"""The store and the command layer from Python: for tests, tools and set-up, not for the data path."""

from __future__ import annotations

from typing import Any, Literal

from ...runtime.closing import Closing
from ...runtime.errors import CorelaneError, check
from ...runtime.typed import typed
from .._native import ffi, lib

Mode = Literal["set", "add", "replace", "append", "prepend", "cas"]
Protocol = Literal["auto", "ascii", "binary"]
_FORBIDS = {"auto": 0, "ascii": lib.CL_KV_NO_BINARY, "binary": lib.CL_KV_NO_TEXT}
_MODES = {
    "set": lib.CL_KV_SET,
    "add": lib.CL_KV_ADD,
    "replace": lib.CL_KV_REPLACE,
    "append": lib.CL_KV_APPEND,
    "prepend": lib.CL_KV_PREPEND,
    "cas": lib.CL_KV_CAS,
}
_OUTCOMES = {
    lib.CL_KV_OK: "ok",
    lib.CL_KV_NOT_STORED: "not_stored",
    lib.CL_KV_EXISTS: "exists",
    lib.CL_KV_NOT_FOUND: "not_found",
    lib.CL_KV_TOO_LARGE: "too_large",
    lib.CL_KV_NO_MEMORY: "no_memory",
    lib.CL_KV_NON_NUMERIC: "non_numeric",
}
_STATUS = {lib.CL_KV_MORE: "more", lib.CL_KV_FULL: "full", lib.CL_KV_QUIT: "quit", lib.CL_KV_TURN: "turn"}


def _fields(struct: Any) -> dict[str, int]:
    return {name: int(getattr(struct, name)) for name, _ in ffi.typeof(struct).fields}


class Store(Closing):
    """A store of bounded memory (apps/kv/store.h). Close it, or use it as a context manager.

    memory_bytes: all that it may take, at least 1 MiB a partition; item_max_bytes, index_bytes: 0 for the defaults;
    partitions: power of two; threads: how many may work on it at the same time, each through its own number;
    huge_pages: 0 no, 1 transparent, 2 hugetlb; manual_clock: time moves only by `time_s = ...`; no_evict: refuse writes
    that find no room; no_cas: tell uniques as 0, and let no cas through; no_flush, no_watch, no_dump: refuse clients
    flush_all, watch, and listings of all keys; protocol: auto, ascii or binary alone; seed: of the hash secret, 0 for a
    random one. Raises CorelaneError when the settings do not do or there is no memory.
    """

    @typed("make a store")
    def __init__(
        self,
        memory_bytes: int = 64 << 20,
        *,
        item_max_bytes: int = 0,
        index_bytes: int = 0,
        partitions: int = 1,
        threads: int = 1,
        huge_pages: int = 1,
        manual_clock: bool = False,
        no_evict: bool = False,
        no_cas: bool = False,
        no_flush: bool = False,
        no_watch: bool = False,
        no_dump: bool = False,
        protocol: Protocol = "auto",
        seed: int = 0,
    ) -> None:
        self._ptr = ffi.NULL
        config = ffi.new(
            "struct cl_kv_config *",
            {
                "memory_bytes": memory_bytes,
                "item_max_bytes": item_max_bytes,
                "index_bytes": index_bytes,
                "partitions": partitions,
                "threads": threads,
                "huge_pages": huge_pages,
                "manual_clock": int(manual_clock),
                "no_evict": int(no_evict),
                "no_cas": int(no_cas),
                "forbids": lib.CL_KV_NO_FLUSH * no_flush
                | lib.CL_KV_NO_WATCH * no_watch
                | lib.CL_KV_NO_DUMP * no_dump
                | _FORBIDS[protocol],
                "seed": seed,
            },
        )
        out, err = ffi.new("struct cl_kv **"), ffi.new("char[256]")
        check(lib.cl_kv_new(config, out, err), f"make a store of {memory_bytes} bytes", err)
        self._ptr = out[0]

    @property
    def ptr(self) -> Any:
        """The `struct cl_kv *`; raises CorelaneError once the store is closed."""
        if not self._ptr:
            raise CorelaneError("use the store", "it is closed")
        return self._ptr

    def close(self) -> None:
        """Free the memory. Nobody may be using the store. Closing twice is allowed."""
        ptr, self._ptr = self._ptr, ffi.NULL
        lib.cl_kv_delete(ptr)

    def thread(self, number: int = 0) -> Any:
        """The `struct cl_kv_thread *` of a thread, its clock read; raises CorelaneError if there is no such thread."""
        thread = lib.cl_kv_thread(self.ptr, number)
        if not thread:
            raise CorelaneError(f"use thread {number} of the store", "it was made with fewer", "give threads=")
        lib.cl_kv_tick(thread)
        return thread

    def key(self, key: bytes) -> Any:
        """A `struct cl_kv_key *` for `key` (1..250 bytes), good as long as the caller holds the bytes."""
        if not 1 <= len(key) <= lib.CL_KV_KEY_MAX:
            raise CorelaneError("use a key of the store", f"it has {len(key)} bytes", "keys have 1 to 250")
        fields = {"data": ffi.from_buffer(key), "len": len(key), "hash": lib.cl_kv_hash_of(self.ptr, key, len(key))}
        return ffi.new("struct cl_kv_key *", fields)

    @typed("store an item")
    def store(
        self, key: bytes, value: bytes, *, mode: Mode = "set", flags: int = 0, expires_s: int = 0, cas: int = 0
    ) -> str:
        """Store; mode: set add replace append prepend cas. Returns ok, not_stored, exists, not_found, too_large, ..."""
        rc = lib.cl_kv_store(
            self.thread(), self.key(key), _MODES[mode], flags, expires_s, ffi.from_buffer(value), len(value), cas
        )
        return _OUTCOMES[rc]

    @typed("read an item")
    def get(self, key: bytes) -> tuple[bytes, int, int] | None:
        """(value, flags, cas), or None for a miss."""
        meta = ffi.new("struct cl_kv_meta *")
        room = int(self.usage()["item_max_bytes"])
        value = ffi.new("uint8_t[]", room)
        if lib.cl_kv_get(self.thread(), self.key(key), meta, value, room) != lib.CL_KV_OK:
            return None
        return bytes(ffi.buffer(value, meta.value_bytes)), int(meta.flags), int(meta.cas)

    @typed("delete an item")
    def delete(self, key: bytes) -> bool:
        """Whether there was something to delete."""
        return bool(lib.cl_kv_delete_key(self.thread(), self.key(key)) == lib.CL_KV_OK)

    @typed("touch an item")
    def touch(self, key: bytes, expires_s: int) -> bool:
        """Give a key another time (the store's clock; 0: never). Whether it was there."""
        return bool(lib.cl_kv_touch(self.thread(), self.key(key), expires_s) == lib.CL_KV_OK)

    @typed("add to an item")
    def delta(self, key: bytes, amount: int) -> int | str:
        """Add `amount` (negative: subtract, not below 0) to a decimal value: the new one, or the outcome's name."""
        out = ffi.new("uint64_t *")
        rc = lib.cl_kv_delta(self.thread(), self.key(key), amount >= 0, abs(amount), out)
        return int(out[0]) if rc == lib.CL_KV_OK else _OUTCOMES[rc]

    @typed("forget all items")
    def flush_all(self, at_s: int = 0) -> None:
        """Forget everything stored before the time at_s on the store's clock; now if that is not in the future."""
        lib.cl_kv_flush_all(self.thread(), at_s)

    @typed("drop expired items")
    def sweep(self, budget: int = 1 << 20) -> int:
        """Drop up to `budget` expired items a partition ahead of their turn; returns how many went."""
        return int(lib.cl_kv_sweep(self.thread(), budget))

    @property
    def time_s(self) -> int:
        """The store's clock in seconds; it read 2 when the store was made. Settable with manual_clock."""
        return int(self.thread().now_s)

    @time_s.setter
    def time_s(self, now_s: int) -> None:
        lib.cl_kv_set_time(self.ptr, now_s)

    def usage(self) -> dict[str, int]:
        """Bytes, items and evictions: the fields of `struct cl_kv_usage`."""
        out = ffi.new("struct cl_kv_usage *")
        lib.cl_kv_usage(self.ptr, out)
        return _fields(out[0])

    def counters(self) -> dict[str, int]:
        """Sums of the threads' counters: the fields of `struct cl_kv_counters`."""
        out = ffi.new("struct cl_kv_counters *")
        lib.cl_kv_counters(self.ptr, out)
        return _fields(out[0])

    def check(self) -> None:
        """Walk everything and compare; raises CorelaneError with what is wrong. For tests: O(memory)."""
        err = ffi.new("char[256]")
        check(lib.cl_kv_check(self.ptr, err), "check the store", err)


class Session:
    """A client's stream of commands to a store, as a TCP connection would be.

    room: bytes of answer that one call of the command layer may write before it has to stop and be called again.
    """

    @typed("open a session with a store")
    def __init__(self, store: Store, thread: int = 0, room: int = 0) -> None:
        self._store = store
        self._number = thread
        self._session = ffi.new("struct cl_kv_session *")
        self._pending = b""
        self._room = room or int(store.usage()["item_max_bytes"]) + 2 * lib.CL_KV_ANSWER_MAX
        self.closed = False

    @typed("execute commands")
    def execute(self, data: bytes) -> bytes:
        """Feed bytes; returns the answer to every command that they complete. Sets `closed` after quit."""
        self._session.thread = self._store.thread(self._number)
        self._pending += data
        answer = b""
        consumed = ffi.new("uint64_t *")
        buffer = ffi.new("uint8_t[]", self._room)
        while not self.closed:
            out = ffi.new("struct cl_kv_out *", {"data": buffer, "room": self._room})
            source = ffi.from_buffer(self._pending)
            status = _STATUS[lib.cl_kv_process(self._session, source, len(self._pending), consumed, out)]
            answer += bytes(ffi.buffer(out.data, out.len))
            self._pending = self._pending[consumed[0] :]
            if status == "full" and out.len == 0:
                raise CorelaneError(
                    "answer a command", f"{self._room} bytes are too few for its answer", "give more room"
                )
            self.closed = status == "quit"
            if status != "full":
                break
        return answer

    @property
    def wants(self) -> int:
        """Bytes that are waiting for the rest of their command."""
        return len(self._pending)
