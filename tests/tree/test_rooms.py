"""Rooms: the folders of a floor use each other in one direction only, in the order of ROOMS, and so do a room's files.

A room uses another if it imports from it, includes a private header of it, or calls a C function that it defines (by
the objects that the build made). Public headers (include/) are contracts: including one uses no room, calling what it
declares does. Two rooms that use each other are one room, or one of them has something of the other's.
"""

from __future__ import annotations

import ast
import functools
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from cltest.cbuild import ROOT, CBuild, setup_py, symbols

from .test_floors import files, parsed, statements

# The rooms of each floor from below to above, "." being the floor's own folder. A room uses only rooms of groups before
# its own: those between two bars do not use each other.
ROOMS = {
    "runtime": ".",
    "drivers": "linux bpf . | nic blk | port nic/af_xdp nic/link nic/loadgen nic/tap | nic/tcpload",
    "iokernel": "areas policies | policy | control state | . cores | switch | loop",
    "libos": "asyncio/native numba trace | objects sched | batch_work net storage | handlers net/tcp state storage/log"
    " | . aot | asyncio posix service service/launcher | posix/preload trio",
    "apps": ". http/llhttp raft raft/core | http kv raft/transport | kv/stream resp | raft/node"
    " | raft/service raft/sim",
    "cli": ". | trace | lab",
    "bench": "harness packetdrill | harness/pairs"
    " | baseline harness/report harness/tails isolation load/sockload probes raft_loss ring"
    " tenant threads | afxdp batch bimodal colocate echo embed hostile http kv load/reference log tcp | asyncio ground"
    " load raft | . kv_tcp raft_resp | handoff posix resp_durable trace | sim | lab | lab/mechanisms"
    " | lab/policies published",
}


# Rooms whose C files may call each other in circles: state machines in several files, with one internal header.
STATE_MACHINES = {
    "apps/http/llhttp": "a library's two files: its machine calls what its calls define, and the other way round",
    "apps/raft/core": "one message may change term, role, log and members, and each of these the others",
    "apps/raft/sim": "a world in which what happens makes more happen, from one queue of events",
    "iokernel/cores": "a core that changes hands: who wants it, who is asked, what the ways to end it find",
    "libos/net/tcp": "a connection: what comes lets something leave, tells the user, and what the user does, again",
    "libos/sched": "a kthread's turn: it runs, parks, steals and lets go of its core in the middle of one another",
    "libos/storage/log": "a failure anywhere ends all that is under way in append, superblock and snapshot",
}


def levels() -> dict[str, int]:
    """Room -> place of its group on its floor, counted from below."""
    return {
        floor if name == "." else f"{floor}/{name}": level
        for floor, groups in ROOMS.items()
        for level, group in enumerate(groups.split("|"))
        for name in group.split()
    }


def imports(path: Path) -> Iterator[Path]:
    """Files of the tree that a Python file imports from."""
    for node in statements(parsed(path).body):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
        for name in node.names:
            places = (f"{base}/{name.name}.py", f"{base}/{name.name}/__init__.py", f"{base}.py", f"{base}/__init__.py")
            yield from [Path(place) for place in places if (ROOT / place).exists()][:1]


def includes(path: Path) -> Iterator[Path]:
    """Private headers that a C file includes."""
    for name in re.findall(r'^\s*#\s*include "([^"]+)"', (ROOT / path).read_text(), re.M):
        yield Path(os.path.normpath(path.parent / name))


def calls() -> Iterator[tuple[Path, Path, str]]:
    """(source, source that defines what it uses, name)."""
    whole = setup_py().c_sources()
    linked = symbols(CBuild("plain")._library(whole))
    home = {name: source for source, (_, has) in zip(whole, linked, strict=True) for name in has}
    for source, (used, _) in zip(whole, linked, strict=True):
        for name in sorted(used & home.keys()):
            yield source, home[name], name


@functools.cache
def file_uses() -> list[tuple[Path, Path, str]]:
    """(file, other file, what of it is used), of all floors."""
    found = [(path, target, str(target)) for path in files("*.py") for target in imports(path)]
    found += [(path, target, str(target)) for path in files("*.c", "*.h", "*.S") for target in includes(path)]
    return found + [(user, used, f"{name} of {used}") for user, used, name in calls()]


def uses() -> dict[tuple[str, str], list[str]]:
    """(room, other room) -> what of it is used, of all floors."""
    out: dict[tuple[str, str], list[str]] = defaultdict(list)
    for user, used, what in file_uses():
        if user.parent != used.parent:
            out[str(user.parent), str(used.parent)].append(f"{user} uses {what}")
    return out


def circles(edges: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Edges that lie on a circle."""
    after = defaultdict(set)
    for a, b in edges:
        after[a].add(b)

    def reached(start: str) -> set[str]:
        seen, todo = set(), [start]
        while todo:
            for room in after[todo.pop()] - seen:
                seen.add(room)
                todo.append(room)
        return seen

    reach = {room: reached(room) for room in {a for a, _ in edges}}
    return sorted((a, b) for a, b in edges if a in reach.get(b, ()))


def test_circles_are_found():
    assert circles({("a", "b"), ("b", "c"), ("c", "d")}) == []
    assert circles({("a", "b"), ("b", "c"), ("c", "b")}) == [("b", "c"), ("c", "b")]


def test_rooms_use_each_other_in_one_direction():
    used = uses()
    assert len(used) > 50
    wrong = circles(set(used))
    assert not wrong, "\n".join(line for edge in wrong for line in (f"{edge[0]} -> {edge[1]}:", *used[edge][:5]))


def test_files_of_a_room_use_each_other_in_one_direction():
    """A function that a file below needs of one above moves down, comes as an argument, or both parts are one file.

    Imports inside functions and those for types alone count.
    """
    used: dict[tuple[str, str], list[str]] = defaultdict(list)
    for user, other, what in file_uses():
        if user.parent == other.parent and user != other:
            used[str(user), str(other)].append(what)
    assert len(used) > 200
    found = circles(set(used))
    listed = [edge for edge in found if edge[0].endswith(".c") and os.path.dirname(edge[0]) in STATE_MACHINES]
    wrong = [edge for edge in found if edge not in listed]
    assert not wrong, "\n".join(f"{a} -> {b}: {', '.join(used[a, b][:5])}" for a, b in wrong)
    assert {os.path.dirname(a) for a, _ in listed} == STATE_MACHINES.keys(), "STATE_MACHINES lists what has no circles"


def test_rooms_use_only_those_listed_before_them():
    level = levels()
    used = {edge: why for edge, why in uses().items() if edge[0].split("/")[0] == edge[1].split("/")[0]}
    wrong = {edge: why[0] for edge, why in used.items() if level[edge[0]] <= level[edge[1]]}
    assert not wrong, "\n".join(f"{room} -> {other}: {why}" for (room, other), why in sorted(wrong.items()))


def test_every_room_is_listed_once():
    listed = [name for groups in ROOMS.values() for name in groups.replace("|", " ").split()]
    assert len(listed) == len(levels())
    assert levels().keys() == {str(path.parent) for path in files("*.py", "*.c", "*.h", "*.S")}


def test_every_room_has_a_page():
    """A folder of the floors begins with a page: the docstring of its __init__.py, or a README.md where all is C."""
    rooms = {path.parent for path in files("*.py", "*.c", "*.h")}
    missing = []
    for room in sorted(rooms):
        page, readme = ROOT / room / "__init__.py", ROOT / room / "README.md"
        text = ast.get_docstring(ast.parse(page.read_text())) or "" if page.exists() else ""
        if len(text.splitlines()) < 3 and not readme.exists():
            missing.append(str(room))
    assert not missing, f"no page says what these own: {', '.join(missing)}"


def test_no_room_has_the_name_of_a_function():
    """`libos.NAME` is imported at first use; a room of that name would take its place once it is imported."""
    from corelane import libos

    assert not [name for name in libos.__all__ if (ROOT / "libos" / name).is_dir()]
