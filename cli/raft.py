"""corelane raft: make a node's log, look at a running group, change its members, hand leadership over, save its state,
and begin a group anew."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..runtime.errors import CorelaneError
from . import values
from .outputs import check_writable
from .usage import WrongUsage, words_are_wrong

if TYPE_CHECKING:
    from ..apps.raft.service.recover import Saved
    from ..libos.storage.log.log import Log

IMPORTS = ("..apps._native",)
UNIT = 4096  # of a log's size
_NOBODY = "look at their addresses, and the way there"
_ITS_ADDRESS = "give its address, too"
_PLACES = ("NODE", "LOG'S CLOCK", "ITS OWN", "AHEAD", "LOG", "FULL", "ENTRIES", "DEAD")
_COLUMNS = ("NODE", "ROLE", "TERM", "LEADER", "COMMIT", "APPLIED", "DURABLE", "MEMBER", "SENDS TO", "STATE")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    made = actions.add_parser("init", help="make the empty log of a new node, once")
    made.add_argument("--log", metavar="FILE", help="in this file, which is made, or on this block device")
    made.add_argument(
        "--size", type=values.size, metavar="SIZE", help="of the file: bytes, K, M or G (default 256M; a device's own)"
    )
    made.add_argument("--force", action="store_true", help="give up what the block device holds")
    made.add_argument("--area", metavar="NAME", help="in this storage area, which nothing was written to yet")
    made.add_argument("--socket", type=values.socket, metavar="PATH", help=values.SOCKET)
    made.add_argument("--json", action="store_true", help="print JSON")
    _add_snapshot(actions)
    made = actions.add_parser("recover", help="make what is left of a group, a stopped node's log, a new group")
    _add_place(made)
    text = "do it: what others acknowledged and this log does not hold is lost"
    made.add_argument("--accept-data-loss", action="store_true", help=text)
    text = "of a damaged log give up what follows the damage"
    made.add_argument("--cut-damage", action="store_true", help=text)
    made.add_argument("--json", action="store_true", help="print JSON")
    texts = {
        "status": "each node's role, term and progress, as it says itself",
        "members": "who belongs to the group and how far each is, as the leader sees it",
        "add": "make a node that was started with join=yes a member",
        "remove": "take a node out of the group",
        "transfer": "hand leadership to a node",
        "clock": "show the log's clock, by which items and sessions expire, or set it",
    }
    for action, text in texts.items():
        made = actions.add_parser(action, help=text)
        if action in ("add", "remove", "transfer"):
            made.add_argument("node", type=values.positive_u32, metavar="ID", help="the node")
        if action == "clock":
            text = "to this time (as in 2026-11-27T21:00:00Z, or seconds since 1970), or to this machine's"
            made.add_argument("--set", nargs="?", const="now", type=_time_ms, metavar="TIME", help=text)
        if action == "add":
            made.add_argument("--learner", action="store_true", help="it gets the log and does not vote")
        if action in ("add", "remove"):
            text = "also if no majority of those who would vote answers: nobody may be left to undo it"
            made.add_argument("--force", action="store_true", help=text)
        _add_group(made)
        made.add_argument("--json", action="store_true", help="print JSON")


def _add_group(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peers", required=True, metavar="LIST", help="all nodes: 1=ADDRESS:PORT,2=ADDRESS:PORT,...")
    parser.add_argument("--group", default="", metavar="NAME", help="the group's name, if the nodes were given one")
    text = "give up after so long (default 10)"
    parser.add_argument("--timeout", type=values.seconds, default=10.0, metavar="S", help=text)


def _add_place(parser: argparse.ArgumentParser) -> None:
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--log", metavar="FILE", help="the node's log, in this file or on this block device")
    place.add_argument("--area", metavar="NAME", help="the node's log, in this storage area")
    text = "the iokernel's socket (default: the user's own, or root's)"
    parser.add_argument("--socket", metavar="PATH", help=text)


def _voters(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} are no ids: write them as in 1,2,3") from None


def _add_snapshot(actions: Any) -> None:
    parser = actions.add_parser("snapshot", help="save a group's state to a file; begin a group from one; export it")
    whats = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    made = whats.add_parser("save", help="save the state of a running group")
    made.add_argument("file", metavar="FILE", help="the file that is made, or replaced")
    text = "from this node (default: the leader)"
    made.add_argument("--node", type=values.positive_u32, default=0, metavar="ID", help=text)
    _add_group(made)
    made = whats.add_parser("restore", help="make the log of a node of a new group, which begins with what was saved")
    made.add_argument("file", metavar="FILE", help="the saved state, the same for each node")
    made.add_argument("--id", type=values.positive_u32, required=True, metavar="ID", help="the node")
    made.add_argument("--voters", type=_voters, required=True, metavar="IDS", help="the new group's: 1,2,3")
    made.add_argument("--size", type=values.size, metavar="SIZE", help="of a new file (default 256M)")
    _add_place(made)
    text = "print what is saved of raft-kv as memcached's commands, of raft-resp as Redis'"
    made = whats.add_parser("export", help=text)
    made.add_argument("file", metavar="FILE", help="the saved state")


def _time_ms(text: str) -> int:
    """A time as ms since 1970; "now"."""
    if text == "now":
        return int(time.time() * 1000)
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = datetime.fromisoformat(text).astimezone(UTC).timestamp()
        except (ValueError, OverflowError):  # of the first years and the last
            seconds = -1
    if not 0 < seconds < 1 << 32:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write it as in 2026-11-27T21:00:00Z")
    return int(seconds * 1000)


def run(options: argparse.Namespace) -> int:
    """0; of status 1 if no node leads."""
    if options.action == "init":
        return _init(options)
    if options.action == "recover":
        return _recover(options)
    if options.action == "snapshot":
        return _snapshot(options)
    from ..apps.raft.service.operate import Operator
    from ..apps.raft.service.service import parse_peers

    with words_are_wrong():
        peers = parse_peers(options.peers)
    if options.action == "add" and options.node not in peers:
        raise WrongUsage(f"add node {options.node}", "it is not among the peers", _ITS_ADDRESS)
    with Operator(options.peers, timeout_s=options.timeout, group=options.group) as group:
        if options.action == "status":
            seen = group.all()
            if not any(seen.values()) and (why := group.why_unsent()):
                raise _silent(why)
            leads = any(s and s["role"] == "leader" for s in seen.values())
            print(json.dumps({"nodes": seen}) if options.json else status_text(seen))
            return 0 if leads else 1
        if options.action == "members":
            said = members(group.leader_status())
            print(json.dumps(said) if options.json else members_text(said))
            return 0
        if options.action == "clock":
            if options.set is not None:
                group.set_clock(options.set)
            seen = group.all()
            if not any(seen.values()):
                raise _silent(group.why_unsent())
            clocks = {node: s["clock"] for node, s in seen.items() if s and "clock" in s}
            print(json.dumps({"clocks": clocks}) if options.json else places_text(seen))
            return 0
        if options.action == "add":
            status = group.add(options.node, options.learner, options.force)
        elif options.action == "remove":
            status = group.remove(options.node, options.force)
        else:
            status = group.transfer(options.node)
        said = members(status)
        print(json.dumps(said) if options.json else members_text(said))
        return 0


def _silent(why: str) -> CorelaneError:
    return CorelaneError("ask the nodes", f"none answers{why}", _NOBODY)


def _init(options: argparse.Namespace) -> int:
    from ..apps.raft.service.logs import make_log_area, make_log_device, make_log_file
    from ..libos.storage.log.log import is_device
    from ..runtime.paths import default_socket

    if bool(options.log) == bool(options.area):
        raise WrongUsage("make a node's log", "neither or both of --log and --area are given", "give one of them")
    if options.log and is_device(options.log):
        if options.size:
            raise WrongUsage(f"make a log of {options.log}", "--size is given", "a block device has its own")
        size = make_log_device(options.log, force=options.force)
    elif options.force:
        raise WrongUsage("make a node's log", "--force is given", "it is for block devices only")
    elif options.log:
        size = options.size or 256 << 20
        if size % UNIT:
            raise WrongUsage(f"make a log of {options.log}", f"--size is no multiple of {UNIT} bytes")
        make_log_file(options.log, size)
    else:
        size = make_log_area(options.socket or default_socket(), options.area)
    said = {"log": options.log, "area": options.area, "bytes": size}
    where = options.log or f"storage area {options.area}"
    print(json.dumps(said) if options.json else f"made an empty log of {size >> 20} MiB in {where}")
    return 0


def _open_log(options: argparse.Namespace, *, look: bool = False, cut: bool = False) -> Log:
    from ..libos.storage.log.log import Log

    on_damage: Literal["refuse", "cut", "read-only"] = "read-only" if look else "cut" if cut else "refuse"
    if options.area:
        return Log.open_area(options.area, options.socket, on_damage=on_damage)
    return Log.open(options.log, on_damage=on_damage)


def _recover(options: argparse.Namespace) -> int:
    """0; 1 if it was not confirmed, and nothing is done."""
    from ..apps.raft.service.recover import recover, survivor

    accepted = options.accept_data_loss
    if accepted and not options.cut_damage:
        with _open_log(options, look=True) as log:
            if log.report.tail == "damaged":
                hint = "take another node's log, or give up what follows with --cut-damage"
                raise CorelaneError("recover the node", f"its log is damaged: {log.report.why}", hint)
    with _open_log(options, look=not accepted, cut=options.cut_damage) as log:
        damage = log.report.why if log.report.tail == "damaged" else ""
        left = recover(log) if accepted else survivor(log)
    if options.json:
        print(json.dumps({"recovered": accepted, "damage": damage, **asdict(left)}))
        return 0 if accepted else 1
    if damage:
        print(f"ITS LOG IS DAMAGED, and what follows the damage is given up by --cut-damage: {damage}")
    print(
        f"node {left.id}: its last entry is {left.last_index}, of term {left.last_term}; by its word the voters are"
        f" {','.join(map(str, left.voters))}"
    )
    if accepted:
        print(
            f"node {left.id} is the only voter of a new group now. Start it, and add nodes with new logs"
            " (`corelane raft init`, join=yes, `corelane raft add`). Never start a node on a log of the old group"
        )
        return 0
    print(
        f"NOTHING WAS DONE. With --accept-data-loss it becomes a new group of one, with all that it holds up to entry"
        f" {left.last_index}. LOST is what was acknowledged and is not among that; and what was not, and is, counts"
        " from then on. Look at the logs of all nodes that are left, and take the one with the highest term, then entry"
    )
    return 1


def _snapshot(options: argparse.Namespace) -> int:
    from ..apps.raft.service import recover

    if options.what == "save":
        from ..apps.raft.service.operate import Operator
        from ..apps.raft.service.service import parse_peers

        with words_are_wrong():
            peers = parse_peers(options.peers)
        if options.node and options.node not in peers:
            raise WrongUsage(f"save a snapshot of node {options.node}", "it is not among the peers", _ITS_ADDRESS)
        check_writable(Path(options.file))
        with Operator(options.peers, timeout_s=options.timeout, group=options.group) as group:
            saved = group.save(options.node)
        recover.write_saved(options.file, saved)
        print(f"saved the state as of entry {saved.index}, term {saved.term}: {len(saved.data)} bytes")
        return 0
    if options.what == "restore":
        with words_are_wrong():
            recover.check_voters(options.id, options.voters)
    saved = recover.read_saved(options.file)
    if options.what == "export":
        from ..apps.raft.service.export import export_store

        for piece in export_store(saved):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return 0
    if options.log and not Path(options.log).exists():
        recover.restore_file(saved, options.id, options.voters, options.log, options.size or 256 << 20)
    else:
        recover.restore(saved, options.id, options.voters, lambda: _open_log(options))
    voters = ",".join(map(str, options.voters))
    print(
        f"the log of node {options.id} begins with entry {saved.index}; voters {voters}. Start all of them with"
        f" {_options_of(saved)}"
    )
    return 0


def _options_of(saved: Saved) -> str:
    """What a node that begins with a saved state has to be started with, beside its id, peers and log."""
    from ..apps.raft.service.export import memory_bytes
    from ..apps.raft.service.settings import GroupSettings

    group, settings = GroupSettings(), saved.settings
    words = [f"memory_bytes={memory}"] if (memory := memory_bytes(saved)) else []
    for name in ("max_sessions", "reply_bytes"):
        if (value := getattr(settings, name)) != getattr(group, name):
            words.append(f"{name}={value}")
    parts = [" ".join(words), "the group's name" if settings.cluster else ""]
    return " and ".join(part for part in parts if part) or "their options of before"


def member_of(status: dict[str, Any]) -> str:
    """What a node takes itself for."""
    members, me = status["members"], status["id"]
    if me in members["voters"]:
        return "voter"
    if me in members["learners"]:
        return "learner"
    return "leaving" if me in members["outgoing"] else "no member"


def state_of(status: dict[str, Any], leader: dict[str, Any] | None) -> str:
    """How a node is: why it has stopped, or why the leader, if there is one, refuses it."""
    from ..apps.raft.service.operate import why_refused

    if status["state"] != "running" or leader is None:
        return str(status["why"] or status["state"])
    why = why_refused(status, leader)
    return f"refused by node {leader['id']}: {why}" if why else str(status["state"])


def status_text(seen: dict[int, dict[str, Any] | None]) -> str:
    """A table, a line each node."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    leaders = [s for s in seen.values() if s and s["role"] == "leader"]
    leader = max(leaders, key=lambda s: int(s["term"]), default=None)
    for node, s in seen.items():
        if s is None:
            rows.append((str(node), "no answer", *("-" for _ in _COLUMNS[2:])))
            continue
        numbers = (str(s[name]) for name in ("term", "leader", "commit", "applied", "durable"))
        to = s["replicate"]["to"] if s["role"] == "leader" else "-"
        rows.append((str(node), s["role"], *numbers, member_of(s), to, state_of(s, leader)))
    places = places_text(seen)
    return table(rows) + (f"\n\n{places}" if places else "")


def _clock_cells(clock: dict[str, int]) -> tuple[str, str, str]:
    """The log's clock, which was never set while it is 0, and the node's own."""
    log_ms, wall_ms, ahead_ms = clock["log_ms"], clock["wall_ms"], clock["ahead_ms"]
    at = [datetime.fromtimestamp(ms / 1000, UTC).strftime("%F %T") for ms in (wall_ms + ahead_ms, wall_ms)]
    return (at[0] if log_ms else "not yet", at[1], f"{ahead_ms / 1000:+.1f} s" if log_ms else "-")


def _log_cells(log: dict[str, int] | None) -> tuple[str, str, str, str]:
    """How large a node's log is, how full, and of what: entries that are kept, and what will be won back."""
    if not log:
        return ("none", "-", "-", "-")
    ring = log["ring_bytes"]
    full = ring - log["free_bytes"] - log["reserved_bytes"]
    used, kept, dead = (f"{100 * n // ring} %" for n in (full, log["kept_bytes"], log["dead_bytes"]))
    return (f"{ring / (1 << 20):.1f} MiB", used, kept, dead)


def places_text(seen: dict[int, dict[str, Any] | None]) -> str:
    """Clocks and logs: a line each node that tells them, and a warning of a clock that is far off."""
    from ..apps.raft.service.service import CLOCK_S, LOST

    told = {node: s for node, s in seen.items() if s and "clock" in s}
    rows: list[tuple[str, ...]] = [_PLACES]
    rows += [(str(n), *_clock_cells(s["clock"]), *_log_cells(s.get("log"))) for n, s in told.items()]
    warnings = []
    for n, s in told.items():
        ahead_s = s["clock"]["ahead_ms"] / 1000
        if abs(ahead_s) > CLOCK_S:
            way = "ahead of" if ahead_s > 0 else "behind"
            hint = "set the one that is wrong (`corelane raft clock --set`)"
            warnings.append(f"the log's clock is {abs(ahead_s):.0f} s {way} node {n}'s: {hint}")
        warnings += [f"node {n} says: node {s[field]} {why}" for field, why in LOST.items() if s.get(field)]
    return "\n".join([table(rows), *warnings]) if told else ""


def table(rows: list[tuple[str, ...]]) -> str:
    """Columns as wide as they need to be."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(w.ljust(widths[i]) for i, w in enumerate(row)).rstrip() for row in rows)


def members(status: dict[str, Any]) -> dict[str, Any]:
    """The group as its leader sees it: the leader, its term, and each member's part, state and match."""
    m, peers = status["members"], {p["id"]: p for p in status["peers"]}
    out = []
    for node in sorted({*m["voters"], *m["outgoing"], *m["learners"]}):
        part = "learner" if node in m["learners"] else "voter" if node in m["voters"] else "leaving"
        leads = node == status["id"]
        peer = peers.get(node, {})
        out.append(
            {
                "id": node,
                "part": part,
                "state": "leader" if leads else peer.get("state", "unknown"),
                "active": leads or bool(peer.get("active")),
                "match": status["durable"] if leads else peer.get("match", 0),
            }
        )
    return {"leader": status["id"], "term": status["term"], "joint": bool(m["outgoing"]), "members": out}


def members_text(said: dict[str, Any]) -> str:
    """The same for people."""
    rows: list[tuple[str, ...]] = [("NODE", "PART", "STATE", "HEARD", "MATCH")]
    for m in said["members"]:
        rows.append((str(m["id"]), m["part"], m["state"], "yes" if m["active"] else "no", str(m["match"])))
    head = f"node {said['leader']} leads term {said['term']}"
    return f"{head}, a change of members is under way\n{table(rows)}" if said["joint"] else f"{head}\n{table(rows)}"
