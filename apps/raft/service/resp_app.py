"""The raft-resp application: `corelane run raft-resp`, typed values under Redis' protocols, replicated by Raft."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...registry import App, option
from .service import RaftService, serve
from .settings import RANGES, GroupSettings, LogSettings, RespSettings, check_range

MEMORY_BYTES = 32 << 20
"""Of the values, if nothing else is said: a log of the default size has room for snapshots of them."""


@dataclass(frozen=True)
class Options:
    """What `corelane run raft-resp` takes."""

    id: int = option(1, "this node, one of the peers")
    peers: str = option(
        "", "all nodes, this one's too: 1=ADDRESS:PORT,2=ADDRESS:PORT,...; at its first start they are the voters"
    )
    port: int = option(6379, "TCP port of Redis' protocols, the same on all nodes")
    policy: str = option("noeviction", "what makes room: maxmemory-policy by Redis' names")
    password: str = option("", "what AUTH asks for")
    backlog: int = option(511, "connections that may be half open; more are answered without a trace")
    group: str = option("", "name of the group: nodes, clients and logs of another one are refused")
    log: str = option("", "file of the persistent log, made by `corelane raft init` (none: in memory only)")
    area: str = option("", "storage area of the iokernel for the log, in a file's place, made ready by the same")
    sqpoll: bool = option(False, "a kernel thread looks for the log's writes; it takes a core while there are some")
    memory_bytes: int = option(
        MEMORY_BYTES, "all that values, keys and connections may take; a node that leads takes it twice"
    )
    election_ms: int = option(
        GroupSettings().election_ms, "without a leader for so long, or up to twice that, a node asks for votes"
    )
    lease: bool = option(False, "reads by lease: no round of messages, but clocks must not drift apart by a quarter")
    replicate: str = option(
        "auto", "to whom commands go at once: all, a majority (the rest a tick later), or auto, by measuring both"
    )
    join: bool = option(
        False, "at its first start: this node will be added to a running group, so it begins with no voters"
    )


def setup(runtime: Any, options: Options) -> RaftService:
    """Serve a node on a libos Runtime that has not started."""
    check_range("port", options.port, *RANGES["resp_port"])
    check_range("backlog", options.backlog, *RANGES["resp_backlog"])
    for name in ("memory_bytes", "election_ms"):
        check_range(name, getattr(options, name), *RANGES[name])
    return serve(
        runtime,
        options.id,
        options.peers,
        resp=RespSettings(port=options.port, policy=options.policy, password=options.password, backlog=options.backlog),
        group=GroupSettings(
            name=options.group,
            memory_bytes=options.memory_bytes,
            election_ms=options.election_ms,
            lease=options.lease,
        ),
        log=LogSettings(file=options.log or None, area=options.area or None, sqpoll=options.sqpoll),
        join=options.join,
        replicate=options.replicate,
    )


APP = App("raft-resp", "typed values, replicated by Raft: Redis' protocols at the node that leads", Options, setup)
