"""Whose messages are handled when: who asks on and on delays himself, and nobody else."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import selectors
import threading
import types
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cltest import wait_until
from cltest.control import STATS, area, connect, hello, refusal
from cltest.registry import FakeRegistry, serving

from corelane.iokernel import Access, UserConfig
from corelane.iokernel._native import lib
from corelane.iokernel.areas.areas import Areas
from corelane.iokernel.control import listener, turns
from corelane.iokernel.control.callers import Came
from corelane.iokernel.control.jobs import Jobs
from corelane.iokernel.control.multiplexer import Multiplexer
from corelane.iokernel.control.registry import Grant
from corelane.iokernel.control.server import ControlServer
from corelane.iokernel.control.turns import Turns
from corelane.iokernel.control.users import Users
from corelane.runtime.errors import CorelaneError
from corelane.runtime.peers import Peer

AT_ONCE = 64
WAITING = 2 * AT_ONCE + 1  # the last one is seen to be the last


class NoAreas(Areas):
    def __init__(self) -> None:
        pass

    def handle(self, op: int, name: str, size: int, owner: str, peer: Peer) -> tuple[dict[str, Any], int]:
        raise CorelaneError("storage areas", "there are none")


class Slow(FakeRegistry):
    """A registry that notes who came when. Its statistics, and its registrations of strangers, take as long as a user's
    messages may in a turn."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def stats_json(self) -> bytes:
        self.calls.append("stats")
        threading.Event().wait(turns._TURN_S * 1.5)
        return super().stats_json()

    def register(self, hello: Any, peer: Peer) -> Grant:
        self.calls.append("register" if peer.trusted else f"register {peer.pid}")
        threading.Event().wait(0 if peer.trusted else turns._TURN_S * 1.5)
        return super().register(hello, peer)


class Sweeping(Slow):
    """A registry that notes each round, too."""

    def sweep(self) -> bool:
        self.calls.append("sweep")
        return super().sweep()


@contextlib.contextmanager
def flood(path: str, connections: int, sent: bytes | bytearray) -> Iterator[None]:
    """So many connections, which have sent that."""
    with contextlib.ExitStack() as stack:
        for _ in range(connections):
            stack.enter_context(connect(path)).sendall(sent)
        yield


def ask_to_register(path: str, during: contextlib.AbstractContextManager[object] | None = None) -> None:
    """Who asks for nothing else. during: entered once it has asked."""
    with connect(path) as honest:
        honest.sendall(hello(b"honest"))
        with during or contextlib.nullcontext():
            assert "this is a test" in refusal(honest)


@pytest.fixture
def users_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`users_of(a, b, ...)`: whose the next connections are. Of each user one process; a Peer says which."""

    def say(*users: int | Peer) -> None:
        peers = [user if isinstance(user, Peer) else Peer(user, user, user, frozenset()) for user in users]
        monkeypatch.setattr(listener, "peer_of", lambda _sock: peers.pop(0))

    return say


def test_registrations_come_before_queries_and_queries_do_not_fill_a_turn(socket_path: str) -> None:
    registry = Slow()
    control = ControlServer(socket_path, registry, patience_s=30)
    with flood(socket_path, 40, STATS * 5):
        ask_to_register(socket_path, serving(control))
    asked = registry.calls.index("register")
    assert asked <= 5, f"{asked} of 200 queries went before the registration"


@pytest.mark.parametrize("uid", [12001, 12002], ids=["another process", "another user"])
def test_registrations_of_one_process_do_not_fill_a_turn(
    socket_path: str, users_of: Callable[..., None], uid: int
) -> None:
    """Of 1, while 2 registers once."""
    users_of(*[Peer(1, 12001, 1, frozenset())] * 40, Peer(2, uid, 1, frozenset()))
    registry = Slow()
    control = ControlServer(socket_path, registry, Access(uids=(12001, 12002)), patience_s=30)
    with flood(socket_path, 40, hello(b"flood")):
        ask_to_register(socket_path, serving(control))
    asked = registry.calls.index("register 2")
    assert asked <= 2, f"{asked} of 40 registrations went before this one"


def test_who_has_had_his_share_of_the_thread_waits_and_others_do_not(
    socket_path: str, users_of: Callable[..., None]
) -> None:
    users_of(12001, 12001, 12002, os.geteuid())
    registry = Slow()
    control = ControlServer(socket_path, registry, Access(uids=(12001, 12002)), patience_s=30)
    control._turns._paid[12001] = math.inf
    with flood(socket_path, 2, STATS * 5), serving(control):
        ask_to_register(socket_path)  # another user,
        ask_to_register(socket_path)  # and one who is trusted
    assert registry.calls == ["register 12002", "register"]


def test_what_a_user_has_closed_while_he_is_held_back_is_not_counted_against_him(
    socket_path: str, users_of: Callable[..., None]
) -> None:
    users_of(12001, 12001, 12001)
    users = Users(defaults=UserConfig(connections=2))
    control = ControlServer(socket_path, FakeRegistry(), Access(uids=(12001,)), patience_s=30, users=users)
    control._turns._paid[12001] = math.inf
    with serving(control), contextlib.ExitStack() as stack:
        old = [stack.enter_context(connect(socket_path)) for _ in range(2)]
        wait_until(lambda: control.counts["connections"] == 2)
        old[0].close()
        stack.enter_context(connect(socket_path))
        wait_until(lambda: control.counts["connections"] == 3)
        wait_until(lambda: control._connections.of_user(12001) == 2)
        assert control.counts["too_many"] == 0


def test_while_somebody_must_wait_the_thread_sleeps(
    socket_path: str, monkeypatch: pytest.MonkeyPatch, users_of: Callable[..., None]
) -> None:
    """However many connections he has that send. What waits is done once it is paid for."""
    monkeypatch.setattr(turns, "_SHARE", 1e-9)
    monkeypatch.setattr(turns, "_BURST_S", 0)
    monkeypatch.setattr(turns, "_WAIT_MOST_S", 0.05)
    users_of(*[12001] * 20)
    registry = Slow()
    control = ControlServer(socket_path, registry, Access(uids=(12001,)), patience_s=30)
    rounds: list[float | None] = []
    select = control._multiplexer.select

    def note(timeout: float | None) -> Iterator[tuple[selectors.SelectorKey, int]]:
        rounds.append(timeout)
        return select(timeout)

    monkeypatch.setattr(control._multiplexer, "select", note)
    with serving(control), flood(socket_path, 20, STATS * 3):
        wait_until(lambda: registry.calls.count("stats") >= 3)
    assert len(rounds) < 200  # a loop that does not sleep makes thousands in this time


def test_who_is_refused_while_more_of_his_waits_holds_nobody_up(
    socket_path: str, users_of: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused has been done by another thread meanwhile; what he sent behind it waits for his next turn."""
    users_of(12001, os.geteuid())
    control = ControlServer(socket_path, FakeRegistry(), Access(uids=(12001,)), patience_s=30, areas=NoAreas())
    put = Jobs.put

    def holds_him_back(jobs: Jobs, user: int, tag: Any, function: Callable[[], Any]) -> None:
        control._turns._paid[user] = math.inf
        put(jobs, user, tag, function)

    monkeypatch.setattr(Jobs, "put", holds_him_back)
    with connect(socket_path) as greedy, serving(control):
        greedy.sendall(area(lib.CL_CONTROL_AREA_LIST) + STATS)
        assert "there are none" in refusal(greedy)
        ask_to_register(socket_path)
    assert control.counts["failed"] == 0


def all_who_come_are(uid: int, control: ControlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for those who stay."""
    take = control._listener._callers.take

    def takes(most: int) -> Came:
        came = take(most)
        stay = int(came.sock is not None)
        came.users = +Counter({os.geteuid(): stay}) + Counter({uid: came.users.total() - stay})
        return came

    monkeypatch.setattr(control._listener._callers, "take", takes)


@pytest.mark.parametrize("uid", [12001, os.geteuid()], ids=["a user", "one who is trusted"])
def test_who_connects_and_goes_is_charged_for_it(socket_path: str, monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    control = ControlServer(socket_path, FakeRegistry(), Access(uids=(12001,)), patience_s=30)
    all_who_come_are(uid, control, monkeypatch)
    monkeypatch.setattr(turns, "_SHARE", 1e-9)  # or it is paid for at once
    for _ in range(10):
        connect(socket_path).close()
    ask_to_register(socket_path, serving(control))
    assert set(control._turns._paid) == {uid} - {os.geteuid()}


def test_a_round_is_charged_to_those_for_whom_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what is done once in it, whatever came: a little that came often would have it for nothing."""
    used, clock = [5.0], types.SimpleNamespace(thread_time=lambda: used[0], monotonic=lambda: 0.0)
    monkeypatch.setattr(turns, "time", clock)
    monkeypatch.setattr(turns, "_SHARE", 0.5)
    some = Turns(Multiplexer())
    some.end()
    for uid, cpu_s in ((12001, 0.01), (12001, 0.01), (12002, 0.02), (os.geteuid(), 0.02)):
        begun = used[0]
        used[0] += cpu_s
        some.charge(uid, begun)
    used[0] += 0.04
    some.end()
    assert some._paid == {12001: pytest.approx(0.08), 12002: pytest.approx(0.06)}
    used[0] += 1
    some.end()
    assert some._paid[12001] == pytest.approx(0.08)


def test_those_who_may_not_attach_have_one_share_whatever_their_ids(
    socket_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = ControlServer(socket_path, FakeRegistry(), Access(uids=(12001,)), patience_s=30)
    monkeypatch.setattr(turns, "_SHARE", 1e-9)
    take, uids = control._listener._callers.take, itertools.count(12002)

    def takes(most: int) -> Came:
        came = take(most)
        came.users = Counter({next(uids): came.users.total(), 12001: came.users.total()})
        return came

    monkeypatch.setattr(control._listener._callers, "take", takes)
    with serving(control):
        for n in range(1, 4):
            connect(socket_path).close()
            wait_until(lambda n=n: control.counts["connections"] >= 2 * n)
        assert set(control._turns._paid) == {12001, turns.STRANGERS}


@pytest.mark.parametrize("greedy", [True, False])
def test_after_those_who_have_had_their_share_whoever_connects_waits(
    socket_path: str, monkeypatch: pytest.MonkeyPatch, greedy: bool
) -> None:
    """For a moment, once the queue is empty: others may stand behind them."""
    pauses: list[float] = []
    monkeypatch.setattr(listener, "_WITH_GONE", AT_ONCE)
    control = ControlServer(socket_path, FakeRegistry(), Access(uids=(12001,)), patience_s=30)
    all_who_come_are(12001, control, monkeypatch)
    control._turns._paid[12001] = math.inf if greedy else 0.0
    monkeypatch.setattr(control._turns, "charge", lambda _uid, _begun: None)
    pause = control._listener._pause
    monkeypatch.setattr(control._listener, "_pause", lambda seconds: pauses.append(seconds) or pause(seconds))
    for _ in range(WAITING):
        connect(socket_path).close()
    with serving(control):
        wait_until(lambda: control.counts["connections"] == WAITING)
        wait_until(lambda: len(pauses) == greedy)
    assert pauses == [listener._GREEDY_PAUSE_S] * greedy


def test_what_waits_of_one_who_has_paid_is_done_in_the_round_that_wakes_up_for_it(
    socket_path: str, monkeypatch: pytest.MonkeyPatch, users_of: Callable[..., None]
) -> None:
    monkeypatch.setattr(turns, "_SHARE", 1e-9)
    monkeypatch.setattr(turns, "_BURST_S", 0)
    monkeypatch.setattr(turns, "_WAIT_MOST_S", 0.02)
    users_of(12001)
    registry = Sweeping()
    control = ControlServer(socket_path, registry, Access(uids=(12001,)), patience_s=30)
    with serving(control), flood(socket_path, 1, STATS * 5):
        wait_until(lambda: registry.calls.count("stats") == 5)
    asked = [i for i, call in enumerate(registry.calls) if call == "stats"]
    assert [registry.calls[a:b] for a, b in itertools.pairwise(asked)] == [["stats", "sweep"]] * 4
