"""Groups: several applications under one name and address (iokernel/switch/members.h, docs/groups.md)."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from cltest import wait_until
from cltest.switching import BROADCAST, arp_frame, between, collect, ip_int, mac_bytes, udp_frame

from corelane.drivers._native import lib
from corelane.drivers.port.port import DRAIN, DRAINING, READY
from corelane.iokernel import AppConfig
from corelane.runtime.errors import CorelaneError

GROUP = {"kv": AppConfig(members=3)}


def spread(client: Any, members: list[Any], flows: int = 64) -> list[set[int]]:
    """The flows that each member gets, of `flows` datagrams; every one comes to exactly one member, once."""
    assert client.send([between(client, members[0], bytes([flow]), flow) for flow in range(flows)]) == flows
    got: list[list[int]] = [[] for _ in members]

    def look() -> bool:
        for mine, member in zip(got, members, strict=True):
            mine += [frame[42] for q in range(member.queues) for frame in member.recv(flows, queue=q)]
        return sum(map(len, got)) >= flows

    wait_until(look)
    assert sorted(flow for mine in got for flow in mine) == list(range(flows))
    return [set(mine) for mine in got]


def of_group(io: Any) -> list[tuple[int, str]]:
    return [(app["member"], app["state"]) for app in io.stats()["apps"] if app["name"] == "kv"]


def left(io: Any, n: int) -> None:
    """Wait until the iokernel has seen that the others have ended: until then what comes for them is lost."""
    wait_until(lambda: len(of_group(io)) == n, what=f"a group of {n}")


def test_members_have_one_address_and_share_its_flows(start, attach):
    io = start(apps=GROUP)
    client, a, b = attach("client"), attach("kv"), attach("kv", kthreads=2)
    assert (a.mac, a.ipv4) == (b.mac, b.ipv4)
    assert [a.info().member, b.info().member, client.info().member] == [0, 1, None]
    first = spread(client, [a, b])
    assert all(len(flows) > 10 for flows in first), "64 flows leave neither of two without work"
    assert spread(client, [a, b]) == first, "a flow keeps its member"
    assert of_group(io) == [(0, "joined"), (1, "joined")]


def test_who_comes_takes_its_part_from_all_and_of_who_goes_only_its_flows_move(start, attach):
    io = start(apps=GROUP)
    client, a, b = attach("client"), attach("kv"), attach("kv")
    two = spread(client, [a, b])
    with attach("kv") as c:
        three = spread(client, [a, b, c])
        assert len(three[2]) > 5
        assert three[0] <= two[0]
        assert three[1] <= two[1]
    left(io, 2)
    assert spread(client, [a, b]) == two, "a dead one's flows go to the others"


def test_new_flows_come_to_those_that_are_ready_and_to_whoever_is_left(start, attach):
    io = start(apps=GROUP)
    client, a, b = attach("client"), attach("kv"), attach("kv")
    every = set(range(64))
    a.say(READY)
    assert of_group(io) == [(0, "ready"), (1, "joined")]
    assert spread(client, [a, b]) == [every, set()]
    b.say(READY)
    both = spread(client, [a, b])
    a.say(DRAINING)
    assert of_group(io) == [(0, "draining"), (1, "ready")]
    assert spread(client, [a, b]) == [set(), every]
    a.say(READY)
    assert spread(client, [a, b]) == both
    a.say(DRAINING)
    b.close()
    left(io, 1)
    assert spread(client, [a]) == [every], "nobody else is there: it gets them rather than that they are lost"


def test_one_replaces_the_others_of_its_user_which_are_told_once(start, attach):
    io = start(apps=GROUP)
    told: list[int] = []
    seen = threading.Event()

    def on_change(state: int, text: str) -> None:
        assert "another process" in text
        told.append(state)
        seen.set()

    client, old = attach("client"), attach("kv", on_change=on_change)
    old.say(READY)
    coming, new = attach("kv"), attach("kv")
    assert new.say(READY, others=True) == 1, "one that is not ready yet is about to be, and stays"
    assert seen.wait(60)
    assert of_group(io) == [(0, "draining"), (1, "joined"), (2, "ready")]
    assert spread(client, [old, coming, new]) == [set(), set(), set(range(64))]
    assert new.say(READY, others=True) == 0
    assert told == [DRAIN]


def test_members_choose_ports_of_their_own_by_which_answers_come_back(start, attach):
    start(apps=GROUP)
    client, a, b, c = attach("client"), attach("kv"), attach("kv"), attach("kv")
    here, there = (mac_bytes(client), ip_int(client)), (mac_bytes(a), ip_int(a))
    for place, member in enumerate((a, b, c)):
        first = lib.CL_SHM_OWN_PORTS + place * lib.CL_SHM_MEMBER_PORTS
        sent = [udp_frame(here, there, b"!", (53, port)) for port in (first, first + lib.CL_SHM_MEMBER_PORTS - 1)]
        assert client.send(sent) == 2
        assert collect(member, 2) == sent


def test_what_is_of_no_flow_comes_to_all_members_and_a_question_is_answered_once(start, attach):
    io = start(apps=GROUP)
    client, a, b = attach("client"), attach("kv"), attach("kv")
    me, them = (mac_bytes(client), ip_int(client)), (mac_bytes(a), ip_int(a))
    answer = arp_frame(2, me, them, them[0])
    assert client.send(answer) == 1
    assert collect(a, 1) == collect(b, 1) == [answer]
    assert client.send(arp_frame(1, me, (bytes(6), them[1]), BROADCAST)) == 1
    assert collect(client, 1) == [arp_frame(2, them, me, me[0])]
    # Whether somebody else has the address: not another member.
    assert a.send(arp_frame(1, them, (bytes(6), them[1]), BROADCAST)) == 1
    wait_until(lambda: sum(app["tx_flooded"] for app in io.stats()["apps"]) == 1)
    assert sum(app["tx_answered"] for app in io.stats()["apps"]) == 1
    for member in (a, b):
        member.recv(8)


def test_a_group_is_bounded_and_a_name_without_one_is_of_one_process(start, attach):
    start(apps=GROUP)
    attach("client")
    with pytest.raises(CorelaneError, match=r"the name client is taken.*members in \[apps.client\]"):
        attach("client")
    for _ in range(3):
        attach("kv")
    with pytest.raises(CorelaneError, match=r"the group kv has 3 members already"):
        attach("kv")


def test_members_are_of_one_address(start, attach):
    start(apps=GROUP)
    attach("kv", ipv4="10.77.0.9")
    with pytest.raises(CorelaneError, match=r"with 10\.77\.0\.9, not 10\.77\.0\.10"):
        attach("kv", ipv4="10.77.0.10")


def test_members_are_of_one_loop(start, attach):
    io = start(apps=GROUP, loop_cpus=(-1, -1))
    client = attach("client")
    members = [attach("kv"), attach("kv")]
    assert len({app["loop"] for app in io.stats()["apps"] if app["name"] == "kv"}) == 1
    assert client.info().loop != members[0].info().loop, "its frames come from the other loop"
    assert all(len(flows) > 10 for flows in spread(client, members))


@pytest.mark.parametrize("mistake", [0, 1, 2, 3])
def test_all_interleavings_of_coming_draining_and_going_lose_no_request(c_program, mistake):
    """And each of the planted mistakes does, and is found."""
    run = c_program("tests/iokernel/switch/c/members_model.c", one_thread=True)
    assert "states" in run(str(mistake))


@pytest.mark.parametrize("mistake", [0, 1, 2, 3])
def test_all_interleavings_keep_a_connection_with_its_member(c_program, mistake):
    """And each of the planted mistakes resets one, and is found."""
    run = c_program("tests/iokernel/switch/c/connections_model.c", one_thread=True)
    assert "states" in run(str(mistake))


def test_members_cannot_forge_what_comes_to_others(c_program, seed):
    run = c_program("tests/iokernel/switch/c/fuzz_members.c", one_thread=True)
    for i in range(3):
        assert "handed on" in run(str(seed + i), "20000", timeout_s=100)
