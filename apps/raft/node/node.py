"""A Raft node (node.h) from Python, with a state machine and an environment written in Python. For tests and tools."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from ....runtime.errors import check
from ..._native import ffi, lib
from ..core.core import Members, members_struct
from .machine import Machine, machine_struct

STATES = {lib.CL_RAFT_RECOVERING: "recovering", lib.CL_RAFT_RUNNING: "running", lib.CL_RAFT_STOPPED: "stopped"}
STATUS = {
    lib.CL_RAFT_OK: "ok",
    lib.CL_RAFT_RETRY: "retry",
    lib.CL_RAFT_BUSY: "busy",
    lib.CL_RAFT_EXPIRED: "expired",
    lib.CL_RAFT_OUT_OF_ORDER: "out of order",
    lib.CL_RAFT_TOO_LARGE: "too large",
    lib.CL_RAFT_REFUSED: "refused",
    lib.CL_RAFT_REPLY_TOO_LARGE: "reply too large",
    lib.CL_RAFT_QUERY_FAILED: "query failed",
    lib.CL_RAFT_APPLY_FAILED: "apply failed",
}
KINDS = {"apply": lib.CL_RAFT_APPLY, "open": lib.CL_RAFT_OPEN, "close": lib.CL_RAFT_CLOSE}


class Node:
    """One node. send(to, frame) and answer(token, status, reply) are called inside the calls below and must not call
    it; a send that returns False refused the frame. `token` is the first of a token's words. settings: fields of
    struct cl_raft_config; limits: those of struct cl_raft_node_config; ages_ms: of struct cl_raft_machine. Raises
    CorelaneError."""

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
        ages_ms: int = 0,
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
        config.machine.ages_ms = ages_ms
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
        return text.decode(errors="replace")

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
