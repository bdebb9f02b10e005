"""The raft-kv application: `corelane run raft-kv`, the key-value store replicated by Raft."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...registry import App, option
from .service import RaftService, serve
from .settings import RANGES, GroupSettings, LogSettings, TcpSettings, check_range


@dataclass(frozen=True)
class Options:
    """What `corelane run raft-kv` takes."""

    id: int = option(1, "this node, one of the peers")
    peers: str = option(
        "", "all nodes, this one's too: 1=ADDRESS:PORT,2=ADDRESS:PORT,...; at its first start they are the voters"
    )
    port: int = option(11211, "TCP and UDP port of memcached's protocol (0: none)")
    tcp_port: int = option(-1, "TCP port (-1: that of `port`, 0: no TCP)")
    udp_port: int = option(-1, "UDP port (-1: that of `port`, 0: no UDP)")
    connections: int = option(1024, "most connections; who comes then is told so and sent away")
    backlog: int = option(1024, "connections that are being opened at one time, at most")
    held_bytes: int = option(0, "memory that connections may hold: commands on their way, answers not read (0: 64 MiB)")
    group: str = option("", "name of the group: nodes, clients and logs of another one are refused")
    log: str = option("", "file of the persistent log, made by `corelane raft init` (none: in memory only)")
    area: str = option("", "storage area of the iokernel for the log, in a file's place, made ready by the same")
    sqpoll: bool = option(False, "a kernel thread looks for the log's writes; it takes a core while there are some")
    in_call: bool = option(
        True, "from election_ms=80 on: its thread waits in the kernel for a lone write, unless that holds something up"
    )
    memory_bytes: int = option(GroupSettings().memory_bytes, "memory of the store")
    election_ms: int = option(
        GroupSettings().election_ms,
        "without a leader for so long, or up to twice that, a node asks for votes; 10 needs a core that nothing else"
        " disturbs",
    )
    lease: bool = option(False, "reads by lease: no round of messages, but clocks must not drift apart by a quarter")
    max_sessions: int = option(GroupSettings().max_sessions, "sessions of clients at one time")
    replicate: str = option(
        "auto", "to whom commands go at once: all, a majority (the rest a tick later), or auto, by measuring both"
    )
    join: bool = option(
        False, "at its first start: this node will be added to a running group, so it begins with no voters"
    )


def setup(runtime: Any, options: Options) -> RaftService:
    """Serve a node on a libos Runtime that has not started."""
    tcp, udp = (options.port if port < 0 else port for port in (options.tcp_port, options.udp_port))
    for port in (options.port, tcp, udp):
        check_range("port", port, *RANGES["port"])
    for name in ("connections", "backlog"):
        check_range(name, getattr(options, name), 1, RANGES[name][1])
    for name in ("memory_bytes", "election_ms", "max_sessions"):
        check_range(name, getattr(options, name), *RANGES[name])
    group = GroupSettings(
        name=options.group,
        memory_bytes=options.memory_bytes,
        election_ms=options.election_ms,
        lease=options.lease,
        max_sessions=options.max_sessions,
    )
    log = LogSettings(
        file=options.log or None, area=options.area or None, sqpoll=options.sqpoll, in_call=options.in_call
    )
    return serve(
        runtime,
        options.id,
        options.peers,
        kv_port=udp,
        tcp=TcpSettings(
            port=tcp, connections=options.connections, backlog=options.backlog, held_bytes=options.held_bytes
        ),
        group=group,
        log=log,
        join=options.join,
        replicate=options.replicate,
    )


APP = App("raft-kv", "the key-value store, replicated by Raft: memcached's protocol on every node", Options, setup)
