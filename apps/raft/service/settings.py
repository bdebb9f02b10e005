"""Settings of a node, in groups of one concern each. A value outside of its limits is refused by ConfigError.

serve(runtime, 1, peers, group=GroupSettings(election_ms=100), log=LogSettings(file="ledger-1.log"))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....runtime.errors import CorelaneError
from ....runtime.options import Group, option
from ..._native import lib

ELECTION_MS = 200
"""Without a leader for so long a node asks for votes, if it is not told otherwise: longer than a node waits for its
turn of a core that others want, too. On such a core 10 ms churns leaders, and commands are refused."""

RANGES = {
    "kv_port": (0, 65535),
    "port": (0, 65535),
    "connections": (0, 1 << 20),
    "backlog": (0, 1 << 20),
    "held_bytes": (0, 1 << 42),
    "resp_port": (1, 65535),
    "resp_backlog": (1, 1 << 20),
    "memory_bytes": (1 << 20, 1 << 42),  # the store's (apps/kv/store.c)
    "election_ms": (1, 3_600_000),
    "max_sessions": (1, int(lib.CL_RAFT_SESSIONS_MOST)),
    "reply_bytes": (8, 65536),  # the number of a session; what a client's socket takes at once
}
"""From where to where numbers may be."""


def check_range(name: str, value: int, least: int, most: int) -> None:
    """Raise CorelaneError if an option's value is none that it may have."""
    if not least <= value <= most:
        raise CorelaneError(f"take {name}={value}", "it is out of range", f"give {least} to {most}")


def _number(default: int, doc: str, name: str) -> Any:
    low, high = RANGES[name]
    return option(default, doc, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings(Group):
    """What is the same on every node of a group: a node with others is refused.

    name: of the group; nodes, clients and logs of another one are refused. memory_bytes: of the store. election_ms:
    without a leader for so long, a node asks for votes; 10 needs a core that nothing else disturbs (docs/raft.md).
    lease: reads by lease (see raft.h for what that assumes of clocks); warned of in a virtual machine. max_sessions: of
    clients at one time; with one more, the one that was silent for longest ends. reply_bytes: of the longest reply;
    memory for max_sessions of them is taken.
    """

    name: str = option("", "name of the group")
    memory_bytes: int = _number(64 << 20, "memory of the store", "memory_bytes")
    election_ms: int = _number(ELECTION_MS, "time without a leader before a node asks for votes", "election_ms")
    lease: bool = option(False, "reads by lease")
    max_sessions: int = _number(256, "sessions of clients at one time", "max_sessions")
    reply_bytes: int = _number(16384, "longest reply", "reply_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpSettings(Group):
    """memcached's protocol on TCP, as kv has it; the nodes may differ in it.

    port: 0: none. connections: at most; who comes then is told so and sent away. backlog: connections that are being
    opened, at most. held_bytes: that connections may hold: commands that have not all come, answers that were not read.
    0 of these is what kv takes.
    """

    port: int = _number(0, "TCP port", "port")
    connections: int = _number(0, "most connections", "connections")
    backlog: int = _number(0, "most connections that are being opened", "backlog")
    held_bytes: int = _number(0, "memory that connections may hold", "held_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class RespSettings(Group):
    """Redis' protocols on TCP, and typed values in the place of the store; give all nodes the same, since any may lead.

    port: TCP port. policy: what makes room, maxmemory-policy by Redis' names. password: what AUTH asks for. backlog:
    connections that are being opened, at most.
    """

    port: int = _number(6379, "TCP port", "resp_port")
    policy: str = option("noeviction", "what makes room")
    password: str = option("", "what AUTH asks for")
    backlog: int = _number(511, "most connections that are being opened", "resp_backlog")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings(Group):
    """Where a node's log is, and how it is written.

    file: made once by `make_log_file` (logs.py). area: in its place, a storage area of the runtime's iokernel. Neither,
    as for all nodes of the group: in memory. sqpoll: a kernel thread looks for its writes (docs/storage.md). in_call:
    from election_ms 80 on, the runtime's thread itself waits in the kernel for a lone write, unless that proves to hold
    anything up (docs/raft.md).
    """

    file: str | None = option(None, "file of the log")
    area: str | None = option(None, "storage area of the log")
    sqpoll: bool = option(False, "a kernel thread looks for its writes")
    in_call: bool = option(True, "wait in the kernel for a lone write")
