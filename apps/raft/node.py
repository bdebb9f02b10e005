"""A Raft node (node.h) from Python, with a state machine and an environment written in Python.

For tests, tools and state machines that do not need machine speed: each call into Python costs about a microsecond.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from ...runtime.errors import check
from .._native import ffi, lib
from .core import Members, members_struct

STATES = {lib.CL_RAFT_RECOVERING: "recovering", lib.CL_RAFT_RUNNING: "running", lib.CL_RAFT_STOPPED: "stopped"}
STATUS = {
    lib.CL_RAFT_OK: "ok",
    lib.CL_RAFT_RETRY: "retry",
    lib.CL_RAFT_BUSY: "busy",
    lib.CL_RAFT_EXPIRED: "expired",
    lib.CL_RAFT_OUT_OF_ORDER: "out of order",
    lib.CL_RAFT_TOO_LARGE: "too large",
}
KINDS = {"apply": lib.CL_RAFT_APPLY, "open": lib.CL_RAFT_OPEN, "close": lib.CL_RAFT_CLOSE}


class Machine(Protocol):
    """A state machine. `apply` must be deterministic. An exception in it stops nothing: it is the empty reply, so it
    must not leave half of a change behind."""

    def apply(self, command: bytes) -> bytes:
        """Carry out a command; returns the reply."""

    def query(self, query: bytes) -> bytes:
        """Answer a read; changes nothing."""

    def save(self) -> bytes:
        """The whole state."""

    def load(self, state: bytes) -> None:
        """Become what `save` saved."""


def _put(out: Any, room: int, data: bytes) -> int:
    n = min(len(data), room)
    ffi.memmove(out, data, n)
    return n


def machine_struct(machine: Machine) -> tuple[dict[str, Any], list[Any]]:
    """A `struct cl_raft_machine` that calls `machine`, and what has to be kept alive with it."""
    state = {"saved": b"", "loading": b""}

    def apply(_arg: Any, _index: int, _clock: int, data: Any, n: int, out: Any, room: int) -> int:
        return _put(out, room, machine.apply(bytes(ffi.buffer(data, n))))

    def query(_arg: Any, _clock: int, data: Any, n: int, out: Any, room: int) -> int:
        return _put(out, room, machine.query(bytes(ffi.buffer(data, n))))

    def save(_arg: Any, at: int, out: Any, room: int) -> int:
        if at == 0:
            state["saved"] = machine.save()
        return _put(out, room, state["saved"][at : at + room])

    def load(_arg: Any, at: int, data: Any, n: int, total: int) -> int:
        state["loading"] = (b"" if at == 0 else state["loading"]) + bytes(ffi.buffer(data, n))
        if at + n == total:
            machine.load(state["loading"])
            state["loading"] = b""
        return 0

    calls = {
        "apply": ffi.callback(
            "int64_t(void *, uint64_t, uint64_t, const uint8_t *, uint32_t, uint8_t *, uint32_t)", apply, error=0
        ),
        "query": ffi.callback(
            "int64_t(void *, uint64_t, const uint8_t *, uint32_t, uint8_t *, uint32_t)", query, error=0
        ),
        "save": ffi.callback("int64_t(void *, uint64_t, uint8_t *, uint64_t)", save, error=-5),
        "load": ffi.callback("int(void *, uint64_t, const uint8_t *, uint64_t, uint64_t)", load, error=-5),
    }
    return {"arg": ffi.NULL, **calls}, list(calls.values())


class Node:
    """One node. send(to, frame) and answer(token, status, reply) are called inside the calls below and must not call
    it; a send that returns False refused the frame. `token` is the first of a token's words. settings: fields of
    struct cl_raft_config; limits: those of struct cl_raft_node_config. Raises CorelaneError."""

    def __init__(
        self,
        id: int,
        members: Members | Iterable[int],
        machine: Machine,
        send: Callable[[int, bytes], bool | None],
        answer: Callable[[int, str, bytes], None],
        *,
        now_ns: Callable[[], int] = time.monotonic_ns,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        log: Any = None,
        limits: dict[str, int] | None = None,
        **settings: int,
    ) -> None:
        group = members if isinstance(members, Members) else Members(frozenset(members))
        table, self._keep = machine_struct(machine)
        env = {
            "now_ns": ffi.callback("uint64_t(void *)", lambda _: now_ns()),
            "wall_ms": ffi.callback("uint64_t(void *)", lambda _: wall_ms()),
            "send": ffi.callback(
                "bool(void *, uint32_t, const uint8_t *, uint32_t, bool)",
                lambda _, to, data, n, _lasting: send(to, bytes(ffi.buffer(data, n))) is not False,
            ),
            "answer": ffi.callback(
                "void(void *, const struct cl_raft_token *, int, const uint8_t *, uint32_t)",
                lambda _, token, status, data, n: answer(
                    int(token.words[0]), STATUS[status], bytes(ffi.buffer(data, n)) if n else b""
                ),
            ),
        }
        self._keep += list(env.values())
        config = ffi.new("struct cl_raft_node_config *", limits or {})
        config.raft = {"id": id, "members": members_struct(group), **settings}
        config.env = {"arg": ffi.NULL, **env}
        config.machine = table
        config.log = log or ffi.NULL
        out, err = ffi.new("struct cl_raft_node **"), ffi.new("char[256]")
        check(lib.cl_raft_node_new(config, out, err), f"make Raft node {id}", err)
        self._ptr = ffi.gc(out[0], lib.cl_raft_node_delete)
        self.id = id

    @property
    def ptr(self) -> Any:
        """The `struct cl_raft_node *`."""
        return self._ptr

    def receive(self, frame: bytes) -> None:
        """A frame from another node."""
        lib.cl_raft_node_receive(self._ptr, frame, len(frame))

    def submit(self, data: bytes, token: int, *, session: int = 0, sequence: int = 0, kind: str = "apply") -> None:
        """A client's command; kind: apply, open or close. The answer comes with `token`."""
        words = ffi.new("struct cl_raft_token *", {"words": [token]})
        lib.cl_raft_node_submit(self._ptr, KINDS[kind], session, sequence, data, len(data), words)

    def query(self, data: bytes, token: int) -> None:
        """A client's read."""
        lib.cl_raft_node_query(self._ptr, data, len(data), ffi.new("struct cl_raft_token *", {"words": [token]}))

    def poll(self) -> int:
        """Do what is to be done; returns when to call again at the latest, in ns."""
        return int(lib.cl_raft_node_poll(self._ptr))

    def compact(self) -> None:
        """Take a snapshot at the next poll."""
        lib.cl_raft_node_compact(self._ptr)

    @property
    def state(self) -> str:
        """recovering, running or stopped."""
        return STATES[lib.cl_raft_node_state(self._ptr)]

    @property
    def why(self) -> str:
        """Why it is stopped."""
        text: bytes = ffi.string(lib.cl_raft_node_why(self._ptr))
        return text.decode()

    @property
    def core(self) -> Any:
        """The `struct cl_raft *`."""
        return lib.cl_raft_node_core(self._ptr)

    @property
    def leader(self) -> int:
        """The leader that it knows of; 0: none."""
        return int(lib.cl_raft_leader(self.core))

    def counters(self) -> dict[str, int]:
        """The fields of struct cl_raft_node_counters."""
        c = ffi.new("struct cl_raft_node_counters *")
        lib.cl_raft_node_counters(self._ptr, c)
        return {n: int(getattr(c, n)) for n, _ in ffi.typeof(c[0]).fields}
