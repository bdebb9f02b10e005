"""A Raft node on a libos runtime (serve.h): the key-value store or a state machine of yours, replicated.

A node that stops, for its disk failed, say, has `Runtime.wait` raise why.

with Runtime("/run/corelane.sock", name="ledger-1") as runtime:
    service = serve(runtime, 1, "1=10.77.0.11:7400,2=10.77.0.12:7400,3=10.77.0.13:7400", machine=Ledger())
    runtime.start()
    runtime.wait()
service.close()
runtime.wait(0)  # raises a stop that came just before the end
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ....runtime.errors import CorelaneError, check
from ....runtime.typed import typed
from ..._native import ffi, lib
from ..core.core import PEER_STATES, ROLES, Members, members_of, members_struct
from ..core.orders import check_order
from ..node.machine import Machine, machine_struct
from ..node.node import STATES
from .logs import Disk, LogArea, LogFile, NodeLog
from .settings import RANGES, GroupSettings, LogSettings, RespSettings, TcpSettings, check_range

_LOGGER = logging.getLogger("corelane.raft")
WATCH_S = 0.2
"""How often a node is checked for having stopped."""
CLOCK_S = 60.0
"""How far the log's clock may be from this machine's before that is spoken of."""
LATE_S = 1.0
"""A disk that is silent for so long is spoken of."""

REFUSALS = {
    "other_settings": ", and is refused by it: they were started with other group settings. memory_bytes, election_ms,"
    " lease, max_sessions, session_ms, reply_bytes and entry_bytes (a log of less than 2.1 MiB lowers it), and whether"
    " it has a log, must be the same on every node of a group; here it is {settings}. So must the version of"
    " corelane, or one that makes the same entries. Stop the one that differs, and start it like the others",
    "other_voters": ", and is refused by it: their groups began with other voters, this one's with {voters}. Those are"
    " the peers of a node's first start, for good, and must be equal on all. Stop the one that is wrong, make its log"
    " anew, and start it with the peers that the others began with, or, if it is to be added, with join=yes",
    "other_incarnation": ": it keeps no log and was started again under its id, or its log is another one than it was,"
    " so it has forgotten its votes and what it acknowledged. Add it under another id, start it with the log that it"
    " had, or start the whole group with logs",
}
"""Why a node is refused, by its counter of struct cl_raft_node_counters."""

LOST = {
    "gone_back": "has a log that is older than what it acknowledged: an old copy was put back, or its disk lost writes."
    " Nothing that it says counts here. Stop it, take it out of the group, and add a new node with a new log",
    "contradicting": "leads without what is committed here: logs of a majority were lost, or old copies put back, and"
    " acknowledged writes are missing there. This node takes nothing of it. Stop the nodes, and see docs/raft.md, When"
    " the worst has happened, before anything is written",
}
"""What a node says of another, which struct cl_raft_node_counters names with these words and `_node`."""

ENTRY_BYTES = 65536
"""The longest entry, if `serve` is not told otherwise and the log takes it."""

REPLICATE = {"all": lib.CL_RAFT_TO_ALL, "majority": lib.CL_RAFT_TO_MAJORITY, "auto": lib.CL_RAFT_TO_AUTO}
"""To whom a leader's entries go at once: node.h, docs/raft.md."""

Addresses = Mapping[int, tuple[str, int]]


def cluster_of(group: str) -> int:
    """The number by which messages and logs name a group; 0 for the one without a name."""
    return int.from_bytes(hashlib.blake2b(os.fsencode(group), digest_size=8).digest(), "little") if group else 0


def parse_peers(peers: str | Addresses) -> dict[int, tuple[str, int]]:
    """{id: (address, port)} of "1=10.0.0.1:7400,2=10.0.0.2:7400", or of such a mapping; raises CorelaneError."""
    what = f"understand the peers {peers!r}"
    pairs: list[tuple[int, tuple[str, int]]] = []
    if not isinstance(peers, str):
        pairs = list(peers.items())
    else:
        for word in peers.split(","):
            try:
                number, place = word.split("=")
                address, port = place.rsplit(":", 1)
                pairs.append((int(number), (str(ipaddress.IPv4Address(address)), int(port))))
            except ValueError:
                raise CorelaneError(what, f"{word!r} is not ID=ADDRESS:PORT", "as in 1=10.77.0.11:7400") from None
    out: dict[int, tuple[str, int]] = {}
    for id, at in pairs:
        if not 1 <= id < 1 << 32:
            raise CorelaneError(what, f"{id} is no id of a node", "take 1 or more")
        if not 1 <= at[1] <= 65535:
            raise CorelaneError(what, f"{at[1]} is no port", "take 1 to 65535")
        if id in out:
            raise CorelaneError(what, f"node {id} is there twice", "give each node one address")
        if at in out.values():
            raise CorelaneError(what, f"two nodes are at {at[0]}:{at[1]}", "give each node an address of its own")
        out[id] = at
    if len(out) > lib.CL_RAFT_MAX_NODES:
        raise CorelaneError(what, f"they are {len(out)}", f"a group has {lib.CL_RAFT_MAX_NODES} nodes at most")
    return out


def _check_fields(given: Mapping[str, int]) -> None:
    """given: fields of struct cl_raft_config."""
    fields = {n: f.type for n, f in ffi.typeof("struct cl_raft_config").fields if f.type.kind == "primitive"}
    for name, value in given.items():
        if name not in fields:
            raise CorelaneError(f"take {name}={value}", "there is no such option", f"one of: {', '.join(fields)}")
        check_range(name, value, 0, (1 << 8 * ffi.sizeof(fields[name])) - 1)


class RaftService:
    """A node that is served by a runtime. Public attribute: id. Made by `serve`."""

    def __init__(
        self,
        ptr: Any,
        id: int,
        ports: tuple[int, ...],
        log: NodeLog | None,
        keep: list[Any],
        settings: str,
        others: Collection[int] = (),
        fail: Callable[[CorelaneError], None] = lambda _: None,
        tcp_port: int = 0,
    ) -> None:
        self._ptr, self._log, self._keep, self._ports = ptr, log, keep, ports
        self._settings = settings
        self._tcp_port = tcp_port
        self._others = frozenset(others)  # who can be refused; any id can stand in a packet
        self._fail = fail
        self._snapshot_room = int(lib.cl_log_snapshot_room(log.ptr)) if log else 0
        self.id = id
        self._closing = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name=f"raft-{id}-watch", daemon=True)
        self._watcher.start()

    def _watch(self) -> None:
        """Say it once if the node stops, and fail its runtime; say each time its disk is late, once if it can make no
        snapshots, and once of each node among the peers that is refused, and why: a replica that does not vote, or
        soon takes no more commands, must not go unnoticed."""
        node = lib.cl_raft_service_node(self._ptr)
        counters = ffi.new("struct cl_raft_node_counters *")
        awaits, since, told, told_large, told_failed = -1, 0.0, False, False, False
        told_clock, told_logs = False, set[tuple[str, int]]()
        refused: set[tuple[str, int]] = set()
        closing = False
        while not closing:
            closing = self._closing.wait(WATCH_S)  # and once more then: it may have stopped since the last look
            if lib.cl_raft_node_state(node) == lib.CL_RAFT_STOPPED:
                why = ffi.string(lib.cl_raft_node_why(node)).decode(errors="replace")
                _LOGGER.error("Raft node %d has stopped, and the others go on without it: %s", self.id, why)
                self._fail(CorelaneError(f"serve Raft node {self.id}", f"it has stopped: {why}"))
                return
            lib.cl_raft_node_counters(node, counters)
            for field, why in REFUSALS.items():
                other = int(getattr(counters, f"{field}_node"))
                if other in self._others and getattr(counters, field) and (field, other) not in refused:
                    refused.add((field, other))
                    why = why.format(settings=self._settings, voters=self._first_voters(node))
                    _LOGGER.error("Raft node %d refuses node %d%s", self.id, other, why)
            if counters.snapshots_too_large and not told_large:
                told_large = True
                text = (
                    "Raft node %d: its state does not fit into a snapshot (%s), so its log cannot be trimmed, and once"
                    " that is full it takes no more commands: have less state, or larger logs on new nodes"
                )
                room = self._snapshot_room
                _LOGGER.error(text, self.id, f"of {room} bytes, what its log sets apart" if room else "in memory")
            if (number := int(counters.snapshot_errno)) and not told_failed:
                told_failed = True
                text = (
                    "Raft node %d cannot make a snapshot: %s [errno %d]. It tries again every 10 s at most; until it"
                    " can, its log cannot be trimmed, and once that is full it takes no more commands"
                )
                _LOGGER.error(text, self.id, os.strerror(number), number)
            told_clock = self._watch_clock(counters, told_clock)
            self._watch_logs(counters, told_logs)
            now = time.monotonic()
            word = int(lib.cl_raft_node_awaits(node))  # of the node itself: its thread may wait in the kernel
            if not word % 2 or word != awaits:
                awaits, since, told = word, now, False
            elif now - since > LATE_S and not told:
                told = True
                text = "Raft node %d: its disk has not answered for %g s, and it does not vote before it does"
                _LOGGER.error(text, self.id, LATE_S)

    def _watch_logs(self, counters: Any, told: set[tuple[str, int]]) -> None:
        """Say once of each node that its log is older than what is remembered of it here."""
        for field, why in LOST.items():
            other = int(getattr(counters, f"{field}_node"))
            if other and (field, other) not in told:
                told.add((field, other))
                _LOGGER.error("Raft node %d: node %d %s", self.id, other, why)

    def _watch_clock(self, counters: Any, told: bool) -> bool:
        """Say it once, and again once it was mended, if the log's clock is far from this machine's."""
        ahead_s = int(counters.clock_ahead_ms) / 1000
        if abs(ahead_s) > CLOCK_S and not told:
            text = (
                "Raft node %d: the log's clock is %.0f s %s this machine's, so what expires does so too %s. If this"
                " machine's is right, `corelane raft clock --set` sets the log's"
            )
            way = ("ahead of", "early") if ahead_s > 0 else ("behind", "late")
            _LOGGER.warning(text, self.id, abs(ahead_s), *way)
        return abs(ahead_s) > CLOCK_S

    @staticmethod
    def _first_voters(node: Any) -> str:
        ids = ffi.new("uint32_t[16]")
        n = lib.cl_raft_node_first_voters(node, ids)
        return ",".join(map(str, sorted(ids[0:n]))) or "voters that it, which joined, was not told of"

    @property
    def ports(self) -> tuple[int, ...]:
        """Its UDP ports: of frames, and of memcached's protocol."""
        return self._ports

    @property
    def tcp_ports(self) -> tuple[int, ...]:
        """Its TCP port, of memcached's protocol or Redis', if it has one."""
        return (self._tcp_port,) if self._tcp_port else ()

    def status(self) -> dict[str, Any]:
        """role, leader, term, commit, applied, ... as of the last tick; members; state and why of the node; replicate,
        to whom entries go at once while it leads ("all", "majority").

        A leader's: leads_for_s, since when it leads, else None; peers, how far each of the others is.
        """
        s = ffi.new("struct cl_raft_status *")
        lib.cl_raft_service_status(self._ptr, s)
        names = ("term", "leader", "commit", "applied", "first", "last", "durable", "snapshot_index")
        out: dict[str, Any] = {n: int(getattr(s, n)) for n in names}
        node = lib.cl_raft_service_node(self._ptr)
        out["role"] = ROLES[s.role]
        out["replicate"] = "majority" if s.thrifty else "all"
        leads_for_ns = int(lib.cl_raft_service_leads_for_ns(self._ptr))
        out["leads_for_s"] = None if leads_for_ns == 2**64 - 1 else leads_for_ns / 1e9
        out["peers"] = [
            {
                "id": int(p.id),
                "state": PEER_STATES[p.state],
                "active": bool(p.active),
                "voter": bool(p.voter),
                "match": int(p.match),
            }
            for p in s.peers[0 : s.n_peers]
        ]
        out["members"] = members_of(s.members)
        out["state"] = STATES[lib.cl_raft_node_state(node)]
        out["why"] = ffi.string(lib.cl_raft_node_why(node)).decode(errors="replace")
        return out

    def stats(self) -> dict[str, int]:
        """Counters of the node (struct cl_raft_node_counters), its ports (struct cl_raft_serve_counters) and its log.

        Of the log: those of struct cl_log_stats that only grow, and log_free_bytes. None is negative: a clock is ahead
        or behind.
        """
        n, c = ffi.new("struct cl_raft_node_counters *"), ffi.new("struct cl_raft_serve_counters *")
        lib.cl_raft_node_counters(lib.cl_raft_service_node(self._ptr), n)
        lib.cl_raft_service_counters(self._ptr, c)
        out = {f"node_{k}": int(getattr(n, k)) for k, _ in ffi.typeof(n[0]).fields}
        ahead_ms = out["node_clock_ahead_ms"]
        out |= {"node_clock_ahead_ms": max(ahead_ms, 0), "node_clock_behind_ms": max(-ahead_ms, 0)}
        out.update({f"port_{k}": int(getattr(c, k)) for k, _ in ffi.typeof(c[0]).fields})
        if front := lib.cl_raft_service_front(self._ptr):
            counts = ffi.new("struct cl_kv_front_counts *")
            lib.cl_kv_front_counts(front, counts)
            out.update({f"conn_{k}": int(getattr(counts, k)) for k, _ in ffi.typeof(counts[0]).fields})
        if resp := lib.cl_raft_service_resp(self._ptr):
            of_port = lib.cl_resp_service_port(resp)
            out.update({f"resp_{k}": int(getattr(of_port, k)) for k, _ in ffi.typeof(of_port[0]).fields})
        status = self.status()
        out.update({k: status[k] for k in ("term", "leader", "commit", "applied")})
        if self._log is not None:
            of_log = ffi.new("struct cl_log_stats *")
            lib.cl_log_stats(self._log.ptr, of_log)
            kept = (k for k, _ in ffi.typeof(of_log[0]).fields if k not in ("width", "registered"))
            out.update({f"log_{k}": int(getattr(of_log, k)) for k in kept})
            out["log_free_bytes"] = int(lib.cl_log_free_bytes(self._log.ptr))
        return out

    def change_members(self, voters: Iterable[int], learners: Iterable[int] = (), timeout_s: float = 5.0) -> None:
        """Ask this node, which has to lead, to make the group these. Raises Refused, CorelaneError."""
        v, n = sorted(voters), sorted(learners)
        self._ask(v, n, "change the members", timeout_s)

    def transfer(self, to: int, timeout_s: float = 5.0) -> None:
        """Ask this node, which has to lead, to hand leadership to another. Raises Refused, CorelaneError."""
        self._ask([], [to], f"hand leadership to node {to}", timeout_s)

    def _ask(self, voters: list[int], learners: list[int], what: str, timeout_s: float) -> None:
        check_order(lib.cl_raft_service_ask(self._ptr, voters, len(voters), learners, len(learners)), what, 0)
        deadline = time.monotonic() + timeout_s
        while (rc := lib.cl_raft_service_asked(self._ptr)) == -115:  # EINPROGRESS
            if time.monotonic() > deadline:
                raise CorelaneError(what, "the runtime does not run", "start it")
            time.sleep(0.001)
        if rc < 0:
            status = self.status()
            if status["state"] == "stopped":
                raise CorelaneError(what, f"the node has stopped: {status['why']}")
            check_order(rc, what, status["leader"])

    def close(self) -> None:
        """Free everything, once the runtime has stopped or is closed. Twice is allowed. Raises what NodeLog.close does.

        `Runtime.wait` raises a stop of the node also afterwards, if it came too late to be seen before.
        """
        self._closing.set()
        self._watcher.join()
        ptr, self._ptr = self._ptr, ffi.NULL
        try:
            if self._log is not None:  # first: what is in flight is the node's
                self._log.close()
        finally:
            lib.cl_raft_service_delete(ptr)


_HYPERVISORS = ("qemu", "kvm", "vmware", "virtualbox", "xen", "amazon ec2", "google compute", "virtual machine")


def in_virtual_machine(root: str = "/") -> bool:
    """Whether a hypervisor runs this machine, which it may stop without the clock noticing: x86 CPUs say so, of others
    the firmware does, if anything."""

    def text_of(path: str) -> str:
        try:
            return Path(root, path).read_text(errors="replace")
        except OSError:
            return ""

    cpus = text_of("proc/cpuinfo")
    if "\nflags" in cpus:
        return " hypervisor" in cpus
    made_by = " ".join(text_of(f"sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name")).lower()
    return Path(root, "proc/device-tree/hypervisor").exists() or any(h in made_by for h in _HYPERVISORS)


def _log_of(runtime: Any, log: LogSettings, disk: Disk | None) -> NodeLog | None:
    """Where the caller wants it."""
    if log.area is None:
        return LogFile(log.file, disk, sqpoll=log.sqpoll) if log.file else None
    if log.file:
        why = f"both {log.file} and storage area {log.area} are given"
        raise CorelaneError("open the node's log", why, "give one of them")
    if runtime.socket is None:
        raise CorelaneError(
            f"open storage area {log.area}", "the runtime is embedded on a NIC", "attach to an iokernel, or give a file"
        )
    return LogArea(runtime.socket, log.area, disk, sqpoll=log.sqpoll)


def _check_machine(what: str, machine: Any) -> None:
    """Raise CorelaneError for what is no state machine: else the first command would stop the node."""
    if isinstance(machine, type):
        name = machine.__name__
        raise CorelaneError(what, f"machine is the class {name}", f"give an object of it: machine={name}()")
    lacks = [name for name in ("apply", "query", "save", "load") if not callable(getattr(machine, name, None))]
    if lacks:
        why = f"its machine, of type {type(machine).__name__}, has no {', '.join(lacks)}"
        raise CorelaneError(what, why, "write the methods of corelane.apps.raft.node.machine.Machine")


@typed("serve a Raft node")
def serve(
    runtime: Any,
    id: int,
    peers: str | Addresses,
    *,
    machine: Machine | None = None,
    kv_port: int = 0,
    tcp: TcpSettings | None = None,
    resp: RespSettings | None = None,
    group: GroupSettings | None = None,
    log: LogSettings | None = None,
    join: bool = False,
    replicate: str = "auto",
    disk: Disk | None = None,
    **settings: int,
) -> RaftService:
    """Serve node `id` of `peers` on a libos Runtime that has not started.

    peers: of all nodes, this one's too, {id: (address, port)} or as `parse_peers` takes it. At a node's first start
    they are the voters that the group begins with, and must be the same on all of its first nodes; that is written to
    the log, and later they are addresses only, of which there may be more. machine: the state machine; None: the key-
    value store. kv_port: memcached's protocol over UDP there (only for that); tcp: the same over TCP. resp: typed
    values in the store's place, and Redis' protocols over TCP. group: what all
    nodes have in common; log: where this one's is (settings.py). A node without a log that ends must not be started
    again under its id, since it has lost its votes and what it acknowledged: the others refuse it, and it stops
    (docs/raft.md). join: at its first start, this node will be added to a running group; later it changes nothing.
    disk: what to put around the log's device (logs.py). replicate: to whom entries go at once while this node leads,
    see docs/raft.md; the nodes may differ in it. settings: further fields of struct cl_raft_config. entry_bytes: of the
    longest entry, a command and 32 bytes, and the same on every node; 64 KiB, or what a log of less than 2.1 MiB takes.

    Raises CorelaneError, also for a log of another node, group, or other settings. If the node stops later, the
    runtime's `wait` raises why.
    """
    places = parse_peers(peers)
    if machine is not None:
        _check_machine(f"serve Raft node {id}", machine)
    if resp and (machine is not None or kv_port or (tcp and tcp.port)):
        why = "resp is given, and so is a state machine or a port of memcached's protocol"
        raise CorelaneError(f"serve Raft node {id}", why, "a node has one state machine: give one of them")
    group, log, tcp = group or GroupSettings(), log or LogSettings(), tcp or TcpSettings()
    check_range("kv_port", kv_port, *RANGES["kv_port"])
    _check_fields(settings)
    if replicate not in REPLICATE:
        raise CorelaneError(f"replicate to {replicate!r}", "there is no such way", f"one of {', '.join(REPLICATE)}")
    if id not in places:
        raise CorelaneError(f"serve Raft node {id}", "it is not among the peers", "give its own address, too")
    mine = (runtime.address, places[id][1])
    if places[id] != mine:
        raise CorelaneError(
            f"serve Raft node {id}",
            f"its address is {mine[0]}, the peers say {places[id][0]}",
            "give the application that address: [apps.NAME] ip = ... in the iokernel's configuration",
        )
    if group.lease and in_virtual_machine():
        text = (
            "Raft node %d reads by lease in a virtual machine: if its host pauses or moves it, and its clock stands"
            " still meanwhile, it may answer reads with what is out of date. Start all nodes without the lease, or"
            " never pause them"
        )
        _LOGGER.warning(text, id)
    file = _log_of(runtime, log, disk)
    keep: list[Any] = []
    config = ffi.new("struct cl_raft_serve_config *")
    members = members_struct(Members() if join else Members(frozenset(places)))
    longest = min(ENTRY_BYTES, int(lib.cl_log_max_bytes(file.ptr))) if file else ENTRY_BYTES
    settings = {**settings, "entry_bytes": settings.get("entry_bytes") or longest}
    ticks = {"election_ticks": 10, "lease_reads": int(group.lease), "seed": time.time_ns() & 0xFFFFFFFF}
    config.node.raft = {"id": id, "cluster": cluster_of(group.name), "members": members, **ticks, **settings}
    config.node.tick_ns = group.election_ms * 100_000
    config.node.replicate = REPLICATE[replicate]
    config.node.max_sessions, config.node.reply_bytes = group.max_sessions, group.reply_bytes
    if file:
        config.node.log, config.blk, config.in_call = file.ptr, file.blk.ptr, log.in_call
    if machine is not None:
        config.node.machine, keep = machine_struct(machine)
        config.foreign = 1
        for call in ("apply", "query", "save", "load", "check"):
            if function := getattr(config.node.machine, call):
                runtime.name_function(function, f"{type(machine).__name__}.{call}")
    others = {n: place for n, place in places.items() if n != id}
    for i, (number, (address, port)) in enumerate(others.items()):
        config.peers[i] = {"id": number, "ipv4": int(ipaddress.IPv4Address(address)), "port": port}
    config.n_peers, config.port = len(others), places[id][1]
    config.kv_port, config.kv_memory_bytes = kv_port, group.memory_bytes
    config.kv_tcp_port, config.kv_held_bytes = tcp.port, tcp.held_bytes
    config.kv_connections, config.kv_backlog = tcp.connections, tcp.backlog
    if resp:
        keep += [ffi.new("char[]", text.encode()) for text in (resp.policy, resp.password)]
        config.resp.port, config.resp.backlog, config.resp.policy = resp.port, resp.backlog, keep[0]
        config.resp.password = keep[1] if resp.password else ffi.NULL
    out, err = ffi.new("struct cl_raft_service **"), ffi.new("char[256]")
    rc = lib.cl_raft_serve(runtime.ptr, config, out, err)
    if rc < 0 and file:
        file.close()
    check(rc, f"serve Raft node {id} of group {group.name}" if group.name else f"serve Raft node {id}", err)
    ports = (places[id][1], kv_port) if kv_port else (places[id][1],)
    store = "" if machine is not None else f"memory_bytes={group.memory_bytes} "
    yes = {True: "yes", False: "no"}
    said = (
        f"{store}election_ms={group.election_ms} lease={yes[group.lease]} max_sessions={group.max_sessions}"
        f" reply_bytes={group.reply_bytes} entry_bytes={settings['entry_bytes']} log={yes[file is not None]}"
    )
    return RaftService(out[0], id, ports, file, keep, said, others, runtime.fail, resp.port if resp else tcp.port)
