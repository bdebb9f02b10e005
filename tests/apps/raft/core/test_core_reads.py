"""The core where reads are asked for: rounds, leases, and followers that ask their leader."""

from __future__ import annotations

from raftlab import Lab


def led(lab: Lab):
    """Who leads when time has passed for all nodes, as voters with a lease want it; else node 1 is elected."""
    for node in lab.nodes.values():
        for _ in range(10):
            node.core.tick()
    lab.settle()
    return lab.leader() or lab.elect(1)


def test_a_read_waits_for_a_round_and_a_lease_read_does_not():
    for lease in (0, 1):
        lab = Lab(3, lease_reads=lease)
        leader = led(lab)
        lab.tick(3)
        leader.answers.clear()
        leader.core.read_index(7)
        leader.answers += leader.core.reads()
        assert bool(leader.answers) == bool(lease)
        lab.settle()
        assert leader.answers == [(7, leader.core.status()["commit"])]


def test_a_read_does_not_join_a_round_that_is_on_its_way():
    """Its answers may have been given before the read was asked for, and another may lead since."""
    lab = Lab(3)
    leader = lab.elect(1)
    lab.tick(3)
    leader.answers.clear()
    for _ in range(2):
        leader.core.tick()
    lab.collect()
    while lab.wire:
        lab.deliver()
    answers = [data for i in (2, 3) for _, data in lab[i].outbox]
    assert len(answers) == 2
    for i in (2, 3):
        lab[i].outbox.clear()
    leader.core.read_index(7)
    for data in answers:
        leader.core.step(data)
    leader.drive()
    assert leader.answers == []
    lab.settle()
    assert leader.answers == [(7, leader.core.status()["commit"])]


def test_a_lease_ends_with_a_transfer_and_before_others_may_be_elected():
    lab = Lab(3, lease_reads=1)
    leader = led(lab)
    lab.tick(2)
    s = leader.core.status()
    assert s["ticks"] < s["lease_until_tick"] <= s["ticks"] + 9 - 2
    leader.core.transfer(next(i for i in lab.nodes if i != leader.id))
    assert leader.core.status()["lease_until_tick"] == 0


def test_a_follower_asks_its_leader_for_a_read_index():
    lab = Lab(3)
    lab.elect(1)
    lab.tick(2)
    lab[2].core.read_index(9)
    lab.settle()
    assert lab[2].answers == [(9, lab[1].core.status()["commit"])]


def test_a_lease_is_not_lent_to_a_follower():
    """The leader's clock was not looked at for a message: its ticks may be late, and its lease over."""
    lab = Lab(3, lease_reads=1)
    leader = led(lab)
    lab.tick(2)
    assert leader.core.status()["ticks"] < leader.core.status()["lease_until_tick"]
    follower = next(n for i, n in lab.nodes.items() if i != leader.id)
    follower.core.read_index(9)
    lab.settle()
    assert follower.answers == [(9, leader.core.status()["commit"])]
    assert leader.core.counters()["reads_by_lease"] == 0
