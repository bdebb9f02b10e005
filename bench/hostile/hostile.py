"""Hostile: an application's latency beside an attacker, and how long another one takes to attach.

The victim is the echo application on the worker core. It, the attacker and who attaches are processes of two
unprivileged users: the attacker is one, the others are the other. Each attack of attacks.py takes turns with all others
and with the victim alone. After the victim's slice, while the attack goes on, applications attach.

A process takes CPU time of the core that it runs on, whatever it does there, and so does the control thread that
answers it. With a third core both keep off the victim's: the victim is loaded at half of its capacity, as `isolation`
finds it, and the figure is over the victim alone. With two they share its core. There the victim has a modest load, and
the figure is over neighbours that are as busy and do nothing: for each attack, stand-ins for the attacker and for the
control thread use as much CPU time, in as many pieces. The ratio over alone stands beside it, and so does the share of
the core that the control thread took.

Wishes for cores have a part of their own, where an iokernel moves a core: the victim at a small load beside a job that
computes and wishes for everything, over the same beside a job without wishes.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...iokernel import Access, AppConfig, Idle, Iokernel
from ...iokernel.areas.areas import Area, Areas, DirectoryStore
from ...runtime.errors import CorelaneError
from ..harness import rig, usage
from ..harness.load import Load
from ..harness.pairs import Compared, said, take
from ..harness.plot import Canvas
from ..harness.session import Session
from ..isolation.victim import ALONE, bars, half_load, place, record
from ..tenant import shared
from ..tenant.tenant import Tenant
from .attacker import Attacker
from .attacks import ATTACKS
from .judge import P99, Rounds, Turn, judge, stand_in

SUMMARY = "an application's p99 and another one's attach beside attackers, over what they are without"
FIGURES = ("hostile.p99_ratio", "hostile.attach_ms")

HONEST_USER, ATTACKING_USER = 61_001, 61_002  # no account needs to have these numbers
SLICE_S, WINDOW_S = 0.2, 0.01
WISHED = 0.1  # of the run
COMPUTES = 0.2  # of a CPU: one that has more and does not sleep wants all of it; less, and it was asleep all the time
REST_S = 0.6  # after an attack: who has had more than his share is held back for half a second (turns.py)
LOOK_S, QUIET, RESTS_MOST = 0.2, 0.02, 15  # then until the control thread uses so little of a CPU for so long
SETTLE_S = 0.15  # of an attack before the slice: what users may have at once is used up
BEGUN_S = 0.05  # of stand-ins before it: they are in full swing
ATTACHES = 3  # in a turn
MODEST_RPS = 50_000.0  # for a core that others share: what comes in their time slices fits into the rings
WISHES_SLICE_S = 0.2
WISHES, NO_WISHES = "computing, weight 1000 and a guarantee wished for", "computing, nothing wished for"
LOOP = "cl-loop"  # the thread's name
AREAS_BYTES = 16 << 20
ATTACHES_OF, CHANGES_OF = "largest arena", "storage areas"  # the attacks that have the kernel work (busy.py)
OF_USERS = (  # mean nothing unless the attacker is another user than the victim: budgets are by user
    "idle connections",
    "connect and close",
    "STATS flood",
    "unread answers",
    "garbage",
    "one byte at a time",
    "largest arena",
    "descriptors",
    "storage areas",
)


class CountedStore(DirectoryStore):
    """Counts the areas that it made and deleted."""

    changes = 0

    def create(self, name: str, owner: int, size: int) -> None:
        super().create(name, owner, size)
        self.changes += 1

    def delete(self, area: Area) -> None:
        super().delete(area)
        self.changes += 1


@dataclass
class Scene:
    """The iokernel, its load, and who attacks it and attaches to it. loop: thread id of its loop. store: its areas, if
    it has any. folder: on the same file system, for files of the honest user."""

    iokernel: Iokernel
    load: Load
    attacker: Attacker
    honest: Attacker
    loop: int
    store: CountedStore | None
    folder: str
    number: int = 0  # of names that attach
    attacked: bool = False  # since the last rest

    def rest(self) -> None:
        """Wait until what the last attack left behind is done."""
        if self.attacked:
            time.sleep(REST_S)
            for _ in range(RESTS_MOST):
                with Used(self) as used:
                    time.sleep(LOOK_S)
                if used.shares()["control_core_share"] < QUIET:
                    break
        self.attacked = False


def run(session: Session) -> None:
    """Attack a victim behind an iokernel, then one whose core moves."""
    cores, apart = place(session, "attacker", SLICE_S)
    shares_core = apart == cores[1]
    over = "neighbours that are as busy and do nothing" if shares_core else "the victim alone"
    session.settings["figure_over"] = over
    with contextlib.ExitStack() as stack:
        done = attacked(session, scene(session, stack, cores, apart), shares_core=shares_core)
    judge(session, done, wished(session, cores, len(done.compared) + 1))


def scene(session: Session, stack: contextlib.ExitStack, cores: tuple[int, int], apart: int) -> Scene:
    """Start everything; on `apart` the attacker and who attaches."""
    root = os.geteuid() == 0
    honest, attacking = (HONEST_USER, ATTACKING_USER) if root else (None, None)
    session.settings["unprivileged"] = root
    options: dict[str, Any] = {}
    store, folder = None, ""
    if root:
        options["access"] = Access(uids=(HONEST_USER, ATTACKING_USER), mode=0o666)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-stand-in-"))
        os.chown(folder, HONEST_USER, -1)
        store = CountedStore(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-areas-")), AREAS_BYTES)
        stack.callback(store.close)
        options["areas"] = Areas(store)
    echo = AppConfig(ip=rig.SERVER_IP, users=(HONEST_USER,))
    before = usage.threads()
    kernel, generator = rig.loaded_iokernel(
        stack, cores, traffic=None, port=9000, idle=Idle(spin_us=rig.SPIN_US), apps={"echo": echo}, **options
    )
    loop = next(tid for tid, name in usage.threads().items() if tid not in before and name.startswith(LOOP))
    words = ["echo", "--socket", kernel.socket_path, "--spin-us", str(rig.SPIN_US)]
    stack.callback(rig.App(words, user=honest).close)
    mac = kernel.stats()["uplinks"][0]["mac"]
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.ExitStack() as ours:
        for end in ends:
            end.setblocking(False)
            ours.enter_context(end)
        attacker, other = (
            stack.enter_context(Attacker(kernel.socket_path, apart, user, rig.SERVER_IP, mac, end))
            for user, end in zip((attacking, honest), ends, strict=True)
        )
    return Scene(kernel, Load(generator), attacker, other, loop, store, folder)


def victims_load(session: Session, made: Scene, *, shares_core: bool) -> float:
    """Half of what it carries; beside others on its core, what it carries with the rest that they leave it."""
    if shares_core:
        session.settings["victim_rps"] = MODEST_RPS
        return MODEST_RPS
    rate, why = half_load(session, made.load.measure, seconds=0.15 * session.seconds)
    if why:
        session.note(f"{why}; the victim's load is half of that all the same")
    return rate


def attacked(session: Session, made: Scene, *, shares_core: bool) -> Rounds:
    """The attacks, what is compared with them, and the victim alone."""
    rate = victims_load(session, made, shares_core=shares_core)
    bodies = bodies_of(session, made, rate, shares_core=shares_core)
    attacks = [name for name in bodies if name in ATTACKS]
    over = {name: stand_in(name) if shares_core else ALONE for name in attacks}
    compared = [Compared(name, other, P99, len(over) + 1) for name, other in over.items()]
    done = take(session, bodies, compared, (1 - WISHED) * session.seconds, dict.fromkeys(attacks, (ALONE,)))
    add_rows(session, done)
    return done


def add_rows(session: Session, done: Rounds) -> None:
    """A row for each arm, with what came of its comparison."""
    for name, turns in done.turns.items():
        if not turns:
            continue
        row = record(session, name, [turn.point for turn in turns])
        if attaches := [ms for turn in turns for ms in turn.attach_ms]:
            row |= {"attach_p50_ms": statistics.median(attaches), "attach_max_ms": max(attaches)}
        if name in done.compared:
            row |= said(done.compared[name])


def bodies_of(session: Session, made: Scene, rate: float, *, shares_core: bool) -> dict[str, Callable[[], Turn]]:
    """The arms, attacks first: what one leaves behind is none of a stand-in's. Each attack has had a first turn; one
    that cannot be is skipped."""
    bodies: dict[str, Callable[[], Turn]] = {}
    latest: dict[str, Turn] = {}

    def attack(name: str) -> Turn:
        latest[name] = beside(made, rate, name)
        return latest[name]

    for name in ATTACKS:
        if name in OF_USERS and not session.settings["unprivileged"]:
            session.skip(name, "budgets are by user, and only root can attack as another one: run as root")
            continue
        session.say(f"a first turn: {name}")
        try:
            attack(name)
        except CorelaneError as error:
            session.skip(name, str(error))
            continue
        bodies[name] = partial(attack, name)
    stand_ins = {stand_in(name): partial(as_busy, made, rate, latest, name) for name in bodies if shares_core}
    return {**bodies, **stand_ins, ALONE: partial(beside, made, rate)}


def beside(made: Scene, rate: float, attack: str = "") -> Turn:
    """A slice of the victim's under an attack, or under none; then some attach."""
    if attack:
        made.attacker.start(attack)
        time.sleep(SETTLE_S)
    else:
        made.rest()
    try:
        with Used(made) as used:
            point = made.load.measure(rate, SLICE_S, WINDOW_S)
        made.number += 1
        attached = made.honest.attach(ATTACHES, f"honest-{made.number}")
    finally:
        did = made.attacker.stop() if attack else {}
        made.attacked |= bool(attack)
    point.extra |= used.shares() | {"attack_did": did}
    return Turn(point, [float("inf") if ms is None else ms for ms in attached["ms"]], attached["refused"])


def as_busy(made: Scene, rate: float, latest: Mapping[str, Turn], attack: str) -> Turn:
    """A slice of the victim's beside stand-ins for the attacker and for the control thread, as busy as in the latest
    turn of an attack."""
    extra = latest[attack].point.extra
    share, other = float(extra["attacker_core_share"]), float(extra["control_core_share"])
    pieces, asks = (max(float(extra[f"{who}_pieces_per_s"]), 1 / SLICE_S) for who in ("attacker", "control"))
    computes = extra["attacker_pieces_per_s"] == 0 and share > COMPUTES
    made.rest()
    with contextlib.ExitStack() as stack:
        files: dict[str, float | str] = {}
        if attack == CHANGES_OF:
            files = {"changes": float(extra["changes_per_s"]), "folder": made.folder}
        made.honest.be_busy(share=other, pieces=asks, **files)
        stack.callback(made.honest.stop)
        memory = {"touches": float(extra["attaches_per_s"])} if attack == ATTACHES_OF else {}
        made.attacker.be_busy(share=share, pieces=pieces, asks=asks, sleeps=not computes, **memory)
        stack.callback(made.attacker.stop)
        time.sleep(BEGUN_S)
        with Used(made) as used:
            point = made.load.measure(rate, SLICE_S, WINDOW_S)
    point.extra |= used.shares()
    return Turn(point)


class Used:
    """CPU time that the attacker, and the control thread with those that work for it, use while it is entered; how
    often an application attaches, and how often a storage area is made or deleted."""

    def __init__(self, made: Scene) -> None:
        self._made = made

    def _now(self) -> dict[str, usage.Usage]:
        made, all_of_us = self._made, resource.getrusage(resource.RUSAGE_SELF)  # threads that have ended, too
        ours = usage.Usage(all_of_us.ru_utime, all_of_us.ru_stime, all_of_us.ru_nvcsw, all_of_us.ru_nivcsw)
        others = usage.of_thread(made.loop) + usage.of_thread(threading.get_native_id())
        stand_in = usage.of_process(made.honest.pid)
        return {"attacker": usage.of_process(made.attacker.pid), "control": ours - others + stand_in}

    def _events(self) -> dict[str, int]:
        store = self._made.store
        attaches = self._made.iokernel.stats()["control"]["accepted"]
        return {"attaches_per_s": attaches, "changes_per_s": store.changes if store else 0}

    def __enter__(self) -> Used:
        self._events_before = self._events()
        self._before, self._begin = self._now(), time.monotonic()
        return self

    def __exit__(self, *why: object) -> None:
        took = time.monotonic() - self._begin
        after, events = self._now(), self._events()
        self._used = {who: (after[who] - before, took) for who, before in self._before.items()}
        self._rates = {what: (events[what] - before) / took for what, before in self._events_before.items()}

    def shares(self) -> dict[str, float]:
        """Of a CPU, and in how many pieces; how often what was counted, a second."""
        found = dict(self._rates)
        for who, (used, took) in self._used.items():
            found[f"{who}_core_share"] = max(used.busy_s, 0.0) / took  # a difference of sums read one by one
            found[f"{who}_pieces_per_s"] = max(used.voluntary, 0) / took
        return found


def wished(session: Session, cores: tuple[int, int], of: int) -> Rounds:
    """Turns of the victim beside a job that computes on its core, with wishes and without. of: comparisons in all."""
    victim = AppConfig(ip=rig.SERVER_IP)
    with shared.shared(cores, apps={"victim": victim}) as made:
        made.run(["echo"], "victim")
        jobs = {WISHES: made.tenant("batch", "greedy", paused=True, weight=1000, guaranteed=1)}
        jobs[NO_WISHES] = made.tenant("batch", "modest", paused=True)
        bodies = {name: partial(computing, made, job) for name, job in jobs.items()}
        done = take(session, bodies, [Compared(WISHES, NO_WISHES, P99, of)], WISHED * session.seconds)
    add_rows(session, done)
    return done


def computing(made: shared.Shared, job: Tenant) -> Turn:
    """A slice of the victim's while the job computes."""
    with job.working():
        point, gained = made.beside("victim", job, MODEST_RPS, WISHES_SLICE_S, window_s=WINDOW_S)
    point.extra |= {"victim_core_share": gained["core_s"], "work_per_s": gained["work"]}
    return Turn(point)


def _is_stand_in(name: str) -> bool:
    return name.startswith(stand_in(""))


def _colour(name: str) -> int:
    """Under attack, alone, or beside what an attack is compared with."""
    if name == ALONE:
        return 0
    return 5 if _is_stand_in(name) or name == NO_WISHES else 1


def plot(document: dict[str, Any]) -> Canvas:
    """The victim's p99 in each arm, and the longest attach under each attack."""
    arms = document["arms"]
    attached = [a for a in arms if isinstance(a.get("attach_max_ms"), int | float)]
    canvas = Canvas(
        "hostile: a victim under attack",
        message=document["settings"]["message"],
        n=sum(int(a["sent"]) for a in arms),
        panels=2 if attached else 1,
        size=(14.0, 10.0),
    )
    of = {str(a["name"]): a for a in arms}
    pairs = [name for attack in of if not _is_stand_in(attack) for name in (attack, stand_in(attack)) if name in of]
    bars(canvas, [of[name] for name in pairs], [_colour(name) for name in pairs])
    canvas.caption("Red: under attack. Grey: beside what is as busy as the attack above it, and does nothing else.")
    if attached:
        longest = [float(a["attach_max_ms"]) for a in attached]
        names = [str(a["name"]) for a in attached]
        canvas.bars(names, longest, ylabel="longest attach (ms)", panel=1, colours=[_colour(n) for n in names])
    canvas.caption(f"hostile.p99_ratio is over {document['settings']['figure_over']}.")
    return canvas
