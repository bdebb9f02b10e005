"""Real nodes under load whose operators hand leadership over, take nodes out and add them again, and whose logs are
compacted all the time, while something goes wrong: a link is cut in one direction only and both ends keep the third, a
node is deaf or mute, does not run, or is killed. What clients were told is checked as in test_real_faults.py.

By a seed; a few seconds, CORELANE_SOAK_S=300 for longer.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cltest import NetnsFactory, wait_until
from raftload import Load, loaded
from raftreal import ADDRESS, ELECTION_MS, IDS, SOAK_S, NetnsGroup, seed_of, until_time_is_over

from corelane.runtime.errors import CorelaneError

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.soak(short=True),
    pytest.mark.timeout(180 + 3 * SOAK_S),
]

LOG_ENTRIES = 512
ORDER_S, ORDERED_S, MENDED_S = 0.5, 5.0, 60.0
"""How long an operator tries while something is wrong at most, in all, and after everything was mended."""


def _others(*who: int) -> list[int]:
    return [i for i in IDS if i not in who]


def _one_way(to: int) -> dict[str, object]:
    """What a NIC loses of all that goes to that node."""
    return {"tx": {"loss": 1.0, "ipv4": ADDRESS[to]}}


class _Faults:
    """Each is a context: wrong within, mended after it."""

    def __init__(self, group: NetnsGroup, draw: random.Random) -> None:
        self._group, self._draw = group, draw

    @contextlib.contextmanager
    def link(self, victim: int) -> Iterator[None]:
        """Another does not hear it any more, or it does not hear another; the other direction is whole."""
        other = self._draw.choice(_others(victim))
        deaf, mute = self._draw.sample((victim, other), 2)
        self._group.ask(mute, nic=_one_way(deaf))
        yield
        self._group.ask(mute, nic={})

    @contextlib.contextmanager
    def ring(self, _victim: int) -> Iterator[None]:
        """Each hears one of the others, and is heard by the third."""
        around = self._draw.sample(IDS, 3)
        for i, node in enumerate(around):
            self._group.ask(node, nic=_one_way(around[i - 1]))
        yield
        for node in around:
            self._group.ask(node, nic={})

    @contextlib.contextmanager
    def node(self, victim: int) -> Iterator[None]:
        """It is deaf or mute."""
        self._group.ask(victim, nic={self._draw.choice(("rx", "tx")): {"loss": 1.0}})
        yield
        self._group.ask(victim, nic={})

    @contextlib.contextmanager
    def killed(self, victim: int) -> Iterator[None]:
        """It is dead, and started again from its log."""
        self._group.kill(victim)
        yield
        self._group.start(victim)

    @contextlib.contextmanager
    def stopped(self, victim: int) -> Iterator[None]:
        """It does not run for a while."""
        self._group.pause([victim], self._draw.uniform(0.5, 3) * ELECTION_MS / 1e3)
        yield


def _order(group: NetnsGroup, kind: str, node: int, timeout_s: float) -> None:
    with group.operator(timeout_s) as operator:
        if kind == "transfer":
            operator.transfer(node)
            return
        operator.remove(node)
        operator.add(node)


def _orders(group: NetnsGroup, kind: str, node: int, done: list[str]) -> None:
    with contextlib.suppress(CorelaneError):  # it may not come about, or only later
        _order(group, kind, node, ORDERED_S)
        done.append(kind)


def _whole_again(group: NetnsGroup) -> None:
    """All three are voters, whatever operators had begun."""

    def whole() -> bool:
        with group.operator(ORDERED_S) as operator, contextlib.suppress(CorelaneError):
            for i in sorted(set(IDS) - set(operator.leader_status()["members"]["voters"])):
                operator.add(i)
            members = operator.leader_status()["members"]
            return sorted(members["voters"]) == list(IDS) and not members["outgoing"]
        return False

    wait_until(whole, 120, "all three to be voters again")


@pytest.mark.soak(takes_s=9)
def test_operators_and_snapshots_while_links_and_nodes_fail(netns: NetnsFactory, tmp_path: Path) -> None:
    seed = seed_of("changes")
    draw = random.Random(seed)
    done: list[str] = []
    group = NetnsGroup(tmp_path, netns, log_entries=LOG_ENTRIES)
    with contextlib.closing(group), loaded(group, tmp_path, seed) as load:

        def step() -> None:
            faults = _Faults(group, draw)
            plan = [faults.link, faults.ring, faults.node, faults.killed, faults.stopped]
            orders = ["transfer", "members", draw.choice(("transfer", "members"))] * 2
            draw.shuffle(plan)
            draw.shuffle(orders)
            for fault, order in zip(plan, orders, strict=False):
                _one(group, load, draw, fault, order, done)

        until_time_is_over(step)
        _whole_again(group)
        _order(group, "transfer", draw.choice([i for i in IDS if i != load.leader()]), MENDED_S)
        load.progress(2, "after all of it")
        stats = [group.ask(i, status={})["stats"] for i in IDS]
    print(f"{len(done)} orders were carried out: {done}")
    assert sum(s["node_snapshots"] for s in stats) > 0, "nothing was compacted"


def _one(
    group: NetnsGroup,
    load: Load,
    draw: random.Random,
    fault: Callable[[int], contextlib.AbstractContextManager[None]],
    order: str,
    done: list[str],
) -> None:
    """One fault, and an operator's order that is given right after it."""
    victim, node = draw.choice([load.leader() or 1, *IDS]), draw.choice(IDS)
    operator = threading.Thread(target=_orders, args=(group, order, node, done), daemon=True)
    group.events.append(f"{order} of node {node}, {fault.__name__} at node {victim}")
    with fault(victim):
        operator.start()
        operator.join(ORDER_S)
    operator.join(20 * ORDERED_S)
    assert not operator.is_alive()
    if order == "members":
        _whole_again(group)
    load.progress(draw.randrange(1, 4), f"after {fault.__name__} and {order}")
