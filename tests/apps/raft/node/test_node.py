"""A cluster of nodes in memory: commands, forwarding, reads, sessions, snapshots, new members."""

from __future__ import annotations

import pytest
from raftnodes import Nodes

from corelane.apps._native import ffi, lib


@pytest.fixture
def nodes() -> Nodes:
    cluster = Nodes(3)
    cluster.leader()
    return cluster


def followers(nodes: Nodes, leader: int) -> list[int]:
    return [i for i in nodes.group if i != leader]


def change(nodes: Nodes, leader: int, voters: list[int], learners: list[int] = ()) -> int:
    core = nodes.nodes[leader].core
    rc = lib.cl_raft_change_members(core, voters, len(voters), list(learners), len(learners))
    nodes.settle()
    return int(rc)


def test_a_command_is_applied_everywhere_and_answered_once(nodes):
    leader = nodes.leader()
    assert nodes.command(leader, b"one") == ("ok", b"1")
    assert nodes.command(leader, b"two") == ("ok", b"2")
    nodes.run(5)
    assert all(m.commands == [b"one", b"two"] for m in nodes.machines.values())
    assert all(len(a) == 1 for a in nodes.answers.values())


def deliver_until_answered(nodes: Nodes, token: int) -> None:
    """A frame every 20 us."""
    while token not in nodes.answers:
        nodes.now_ns += 20_000
        _, to, frame = nodes.frames.popleft()
        nodes.nodes[to].receive(frame)
        nodes.nodes[to].poll()


def test_a_lone_command_goes_at_once_and_one_behind_it_a_part_of_a_batchs_time_later(nodes):
    leader = nodes.leader()
    node = nodes.nodes[leader]

    def submit(token: int) -> int:
        """How many messages that makes the leader send."""
        before = sum(source == leader for source, _, _ in nodes.frames)
        node.submit(b"x", token)
        node.poll()
        return sum(source == leader for source, _, _ in nodes.frames) - before

    assert submit(1) == 2
    deliver_until_answered(nodes, 1)  # in 60 us
    assert submit(2) == 2, "nothing is on its way"
    assert submit(3) == 0, "a batch has gone just now"
    there = [source for source, _, _ in nodes.frames].count(leader)
    nodes.now_ns += 60_000
    node.poll()
    assert [source for source, _, _ in nodes.frames].count(leader) == there + 2, "and is not waited for"
    deliver_until_answered(nodes, 3)
    assert [nodes.answers[token] for token in (1, 2, 3)] == [[("ok", b"%d" % token)] for token in (1, 2, 3)]


def test_a_follower_forwards_commands_and_queries(nodes):
    leader = nodes.leader()
    for n, i in enumerate(followers(nodes, leader), 1):
        assert nodes.command(i, b"from %d" % i) == ("ok", b"%d" % n)
        assert nodes.query(i) == ("ok", nodes.query(leader)[1])
    assert nodes.nodes[leader].counters()["commands"] == 2
    assert nodes.nodes[followers(nodes, leader)[0]].counters()["forward_answers"] == 2


def test_a_read_sees_what_was_answered_before(nodes):
    leader = nodes.leader()
    for i in range(20):
        nodes.command(leader, b"%d" % i)
        status, seen = nodes.query(nodes.group[i % 3])
        assert status == "ok"
        assert seen.split(b",")[-1] == b"%d" % i


def test_a_deposed_leader_answers_no_read(nodes):
    old = nodes.leader()
    nodes.command(old, b"before")
    nodes.cut.add(old)
    new = nodes.leader()
    assert nodes.command(new, b"after")[0] == "ok"
    answer = nodes.query(old)
    nodes.run(30)
    answer = nodes.answers.get(nodes.token, [answer])[0]
    assert answer is None or answer[0] == "retry"


def test_a_lease_runs_out_while_its_leader_does_not_run():
    nodes = Nodes(3, lease_reads=1)
    old = nodes.leader()
    nodes.run(20)
    assert nodes.query(old) == ("ok", b"")
    stalled = nodes.nodes.pop(old)
    new = nodes.leader()
    assert nodes.command(new, b"after")[0] == "ok"
    nodes.frames.clear()
    nodes.nodes = {old: stalled}
    answer = nodes.query(old)
    assert answer is None or answer[0] == "retry"


def test_more_reads_by_lease_at_once_than_there_is_room_for_are_all_answered():
    nodes = Nodes(3, lease_reads=1, pending_reads=4)
    leader = nodes.leader()
    nodes.run(20)
    for _ in range(3):
        tokens = range(nodes.token + 1, nodes.token + 11)
        nodes.token += 10
        for token in tokens:
            nodes.nodes[leader].query(b"", token)
        nodes.settle()
        answers = [nodes.answers[token][0][0] for token in tokens]
        assert answers.count("ok") == 4
        assert answers.count("busy") == 6


def test_a_query_that_reaches_who_leads_no_more_is_answered(nodes):
    """By the one who was asked: it could not know that its question to the next one, or the answer, was lost."""
    old = nodes.leader()
    asking, new = followers(nodes, old)
    nodes.token += 1
    nodes.nodes[asking].query(b"", nodes.token)
    late = [frame for frame in nodes.frames if frame[:2] == (asking, old)]
    assert len(late) == 1
    nodes.frames.clear()
    assert lib.cl_raft_transfer(nodes.nodes[old].core, new) == 0
    nodes.run(5)
    assert nodes.leader() == new
    nodes.frames.extend(late)
    nodes.settle()
    assert nodes.answers[nodes.token] == [("retry", b"")]


def test_without_a_leader_the_answer_is_retry():
    nodes = Nodes(3)
    nodes.cut |= {2, 3}
    nodes.settle()
    assert nodes.command(1, b"x") == ("retry", b"")
    assert nodes.query(1) == ("retry", b"")


def test_a_leader_that_loses_its_place_says_that_it_does_not_know(nodes):
    old = nodes.leader()
    nodes.cut.add(old)
    assert nodes.command(old, b"lost") is None
    token = nodes.token
    nodes.run(40)
    assert nodes.answers[token] == [("retry", b"")]
    nodes.cut.clear()
    nodes.run(50)
    assert nodes.answers[token] == [("retry", b"")]
    assert b"lost" not in nodes.machines[nodes.leader()].commands


def test_who_waits_for_entries_that_another_leader_put_others_in_place_of_is_told_to_ask_again(nodes):
    old = nodes.leader()
    nodes.run(20)
    nodes.cut.add(old)
    tokens = []
    for n in range(3):
        assert nodes.command(old, b"mine %d" % n) is None
        tokens.append(nodes.token)
    stalled = nodes.nodes.pop(old)  # it does not notice that nobody answers it
    new = nodes.leader()
    for n in range(5):
        assert nodes.command(new, b"theirs %d" % n)[0] == "ok"
    nodes.nodes[old] = stalled
    nodes.cut.clear()
    nodes.run(50)
    assert nodes.machines[old].commands == [b"theirs %d" % n for n in range(5)]
    assert [nodes.answers[token] for token in tokens] == [[("retry", b"")]] * 3


@pytest.mark.parametrize("committed", [False, True])
def test_a_leader_that_hears_of_its_end_by_a_snapshot_says_that_it_does_not_know(committed):
    """Its command is in the snapshot or not: it cannot tell, and its client must not wait for ever."""
    nodes = Nodes(3, message_bytes=60000)
    old = nodes.leader()
    nodes.run(20)
    (nodes.refuse if committed else nodes.cut).add(old)  # the others get it, and their word of it does not arrive
    assert nodes.command(old, b"first") is None
    token = nodes.token
    stalled = nodes.nodes.pop(old)
    nodes.refuse.clear()
    nodes.frames.clear()
    snapshots: list[bytes] = []
    deliver = nodes._post

    def post(source: int, to: int, frame: bytes) -> bool:
        if to == old and frame[:4] == b"CLRF" and frame[5] == lib.CL_RAFT_SNAPSHOT:
            snapshots.append(frame)
        return deliver(source, to, frame)

    nodes._post = post
    new = nodes.leader()
    for n in range(200):
        assert nodes.command(new, b"%d" % n)[0] == "ok"
    nodes.run(50)
    nodes.nodes[old] = stalled
    stalled.receive(snapshots[-1])
    assert nodes.answers[token] == [("retry", b"")]
    assert (b"first" in nodes.machines[old].commands) is committed
    nodes.cut.clear()
    nodes.run(50)
    assert nodes.machines[old].commands == nodes.machines[new].commands
    assert nodes.answers[token] == [("retry", b"")]


def test_a_command_of_a_session_is_applied_once(nodes):
    leader = nodes.leader()
    s = nodes.session(leader)
    assert nodes.command(leader, b"a", session=s, sequence=1) == ("ok", b"1")
    for i in nodes.group:
        assert nodes.command(i, b"a", session=s, sequence=1) == ("ok", b"1")
    assert nodes.command(leader, b"b", session=s, sequence=2) == ("ok", b"2")
    assert nodes.command(leader, b"a", session=s, sequence=1) == ("out of order", b"")
    nodes.run(5)
    assert all(m.commands == [b"a", b"b"] for m in nodes.machines.values())
    assert nodes.nodes[leader].counters()["duplicates"] == 3


def test_opening_a_session_again_gives_the_same_one():
    """Each request sent again while a group was slow opened one more, and in the end sessions in use had to go."""
    nodes = Nodes(3, max_sessions=4)
    leader = nodes.leader()
    used = nodes.session(leader)
    assert nodes.command(leader, b"a", session=used, sequence=1) == ("ok", b"1")
    asked = {nodes.command(i, b"", kind="open", sequence=77) for i in [*nodes.group, *nodes.group]}
    assert len(asked) == 1
    ((status, number),) = asked
    assert status == "ok"
    other = nodes.command(leader, b"", kind="open", sequence=78)
    assert other not in asked
    session = int.from_bytes(number, "little")
    assert nodes.command(leader, b"b", session=session, sequence=1) == ("ok", b"2")
    assert nodes.command(leader, b"b", session=session, sequence=1) == ("ok", b"2")
    assert nodes.command(leader, b"", kind="open", sequence=77) not in asked
    assert nodes.command(leader, b"c", session=used, sequence=2) == ("ok", b"3")
    assert nodes.nodes[leader].counters()["sessions_opened"] == 4


def test_a_group_that_begins_again_gives_no_session_number_a_second_time():
    """Without logs it counts entries anew: a client of before and a new one shared a session, and what one asked was
    answered with what the other had been, and not done."""
    opened = {}
    for word in 77, 78, 79:
        nodes = Nodes(3)
        leader = nodes.leader()
        opened[word] = [nodes.command(leader, b"", kind="open", sequence=word + 1000 * n) for n in range(3)]
    answers = [answer for some in opened.values() for answer in some]
    assert {answer[0] for answer in answers} == {"ok"}
    assert len(set(answers)) == len(answers)
    for _, number in opened[77]:  # of a group that has ended
        assert nodes.command(leader, b"a", session=int.from_bytes(number, "little"), sequence=1) == ("expired", b"")
    assert nodes.machines[leader].commands == []


def test_a_command_of_a_session_without_a_number_is_refused(nodes):
    leader = nodes.leader()
    s = nodes.session(leader)
    assert nodes.command(leader, b"a", session=s, sequence=0) == ("out of order", b"")
    assert nodes.machines[leader].commands == []


def test_a_session_survives_its_leader(nodes):
    old = nodes.leader()
    s = nodes.session(old)
    assert nodes.command(old, b"a", session=s, sequence=1) == ("ok", b"1")
    nodes.run(5)
    nodes.stop(old)
    nodes.group.remove(old)
    new = nodes.leader()
    assert nodes.command(new, b"a", session=s, sequence=1) == ("ok", b"1")
    assert nodes.machines[new].commands == [b"a"]


def test_sessions_end_by_the_clock_of_the_log_and_by_being_closed():
    nodes = Nodes(3, session_ms=1000)
    leader = nodes.leader()
    kept, closed, idle = (nodes.session(leader) for _ in range(3))
    assert nodes.command(leader, b"", session=closed, kind="close")[0] == "ok"
    assert nodes.command(leader, b"x", session=closed, sequence=1)[0] == "expired"
    for n in range(1, 5):
        nodes.run(400)
        assert nodes.command(leader, b"x", session=kept, sequence=n)[0] == "ok"
    assert nodes.command(leader, b"x", session=idle, sequence=1)[0] == "expired"
    assert nodes.command(leader, b"x", session=kept, sequence=5)[0] == "ok"


@pytest.mark.parametrize(
    ("jump_ms", "lives_ms", "ends_ms"), [(10**11, 400, 600), (0, 900, 1200), (-900_000, 1800, 2200)]
)
def test_a_wall_clock_that_jumps_makes_sessions_live_half_or_twice_as_long_at_most(jump_ms, lives_ms, ends_ms):
    nodes = Nodes(3, session_ms=1000)
    leader = nodes.leader()
    session, other = nodes.session(leader), nodes.session(leader)
    nodes.wall_ms += jump_ms

    def wait(ms: int) -> None:
        """With others' commands, each with a stamp of its own."""
        for _ in range(ms // 20):
            nodes.run(20)
            assert nodes.command(leader, b"y")[0] == "ok"

    assert nodes.command(leader, b"x", session=session, sequence=1)[0] == "ok"
    wait(lives_ms)
    assert nodes.command(leader, b"x", session=session, sequence=2)[0] == "ok"
    wait(ends_ms)
    for s in (session, other):
        assert nodes.command(leader, b"x", session=s, sequence=3)[0] == "expired"


@pytest.mark.parametrize("jump_ms", [10**11, -900_000])
def test_a_reign_begins_with_the_time_in_its_log(jump_ms):
    """Also while nothing of that is applied yet, as after all were started again."""
    nodes = Nodes(3, session_ms=1000)
    old = nodes.leader()
    session = nodes.session(old)
    nodes.run(20)
    nodes.refuse.add(old)  # what it sends is not confirmed, so it is not applied
    assert nodes.command(old, b"x", session=session, sequence=1) is None
    nodes.refuse.clear()
    nodes.cut.add(old)
    nodes.wall_ms += jump_ms
    new = nodes.leader()
    assert nodes.command(new, b"y", session=session, sequence=2)[0] == "ok"
    assert nodes.machines[new].commands[:1] == [b"x"]
    nodes.run(300)
    assert nodes.command(new, b"z", session=session, sequence=3)[0] == "ok"


def test_the_session_not_used_for_longest_makes_room():
    nodes = Nodes(3, max_sessions=4)
    leader = nodes.leader()
    first, *others = [nodes.session(leader) for _ in range(4)]
    assert nodes.command(leader, b"x", session=first, sequence=1)[0] == "ok"
    nodes.session(leader)
    assert nodes.command(leader, b"x", session=others[0], sequence=1)[0] == "expired"
    assert nodes.command(leader, b"x", session=first, sequence=2)[0] == "ok"


def test_the_log_is_compacted_and_who_lags_gets_a_snapshot(nodes):
    leader = nodes.leader()
    s = nodes.session(leader)
    behind = followers(nodes, leader)[0]
    nodes.cut.add(behind)
    for n in range(1, 1001):
        assert nodes.command(leader, b"%04d" % n * 20, session=s, sequence=n)[0] == "ok"
    assert nodes.nodes[leader].counters()["snapshots"] > 3
    nodes.cut.clear()
    nodes.run(100)
    assert nodes.machines[behind].commands == nodes.machines[leader].commands
    # Its sessions came with it.
    nodes.group = [behind, *[i for i in nodes.group if i not in (leader, behind)]]
    nodes.stop(leader)
    new = nodes.leader()
    assert nodes.command(new, b"again", session=s, sequence=1000) == ("ok", b"1000")


def test_members_come_and_go_while_commands_are_answered(nodes):
    leader = nodes.leader()
    nodes.start(4)
    for n in range(400):
        nodes.command(leader, b"%d" % n * 20)
    assert change(nodes, leader, [1, 2, 3], [4]) == 0
    nodes.run(100)
    assert nodes.machines[4].commands == nodes.machines[leader].commands
    gone = followers(nodes, leader)[0]
    assert change(nodes, leader, [i for i in (1, 2, 3, 4) if i != gone]) == 0
    nodes.run(20)
    nodes.stop(gone)
    nodes.group = [i for i in (1, 2, 3, 4) if i != gone]
    assert nodes.command(nodes.leader(), b"last")[0] == "ok"
    nodes.run(5)
    assert all(nodes.machines[i].commands[-1] == b"last" for i in nodes.group)


def test_what_is_too_large_or_broken_is_refused_and_counted(nodes):
    leader = nodes.leader()
    assert nodes.command(leader, b"x" * 9000) == ("too large", (8192 - 32).to_bytes(4, "little"))
    assert nodes.query(leader, b"x" * 2000) == ("too large", (1500).to_bytes(4, "little"))
    before = nodes.nodes[leader].counters()["frames_refused"]
    for junk in (b"", b"CLRQ", b"CLRQ" + bytes(60), b"CLRA" + bytes(60), b"CLRF" + bytes(100), b"x" * 500):
        nodes.nodes[leader].receive(junk)
    assert nodes.nodes[leader].counters()["frames_refused"] == before + 6


def test_a_node_cannot_be_made_with_nonsense():
    config = ffi.new("struct cl_raft_node_config *")
    out, err = ffi.new("struct cl_raft_node **"), ffi.new("char[256]")
    assert lib.cl_raft_node_new(config, out, err) < 0
    assert b"id" in ffi.string(err)
    config.reply_bytes = 7  # a session's number would be written beyond it
    assert lib.cl_raft_node_new(config, out, err) < 0
    assert b"reply_bytes is 7" in ffi.string(err)
    config.reply_bytes, config.replicate = 0, lib.CL_RAFT_TO_AUTO + 1
    assert lib.cl_raft_node_new(config, out, err) < 0
    assert b"replicate is 4: all (1), majority (2) or auto (3)" in ffi.string(err)


OTHER = {
    "max_sessions": 7,
    "session_ms": 60_000,
    "reply_bytes": 64,
    "election_ticks": 11,
    "tick_ns": 1_100_000,
    "lease_reads": 1,
    "entry_bytes": 4096,
}


@pytest.mark.parametrize("name", OTHER)
def test_a_node_with_another_group_setting_is_refused_and_the_others_go_on(name):
    nodes = Nodes(3, lease_reads=0)
    nodes.stop(3)
    odd = nodes.start(3, **{name: OTHER[name]})
    nodes.run(100)
    leader = nodes.nodes[1].leader
    assert leader in (1, 2)
    assert nodes.command(leader, b"one")[0] == "ok"
    assert odd.leader == 0
    assert nodes.machines[3].commands == []
    assert odd.counters()["other_settings"] > 0
    assert odd.counters()["other_settings_node"] in (1, 2)
    for i in (1, 2):
        counters = nodes.nodes[i].counters()
        assert counters["other_settings"] > 0
        assert counters["other_settings_node"] == 3
        assert counters["frames_refused"] == counters["other_settings"]
    nodes.stop(leader)  # two that differ are no majority
    nodes.run(200)
    assert [n.leader for n in nodes.nodes.values()] == [0, 0]
    nodes.stop(3)
    nodes.start(3)
    assert nodes.leader() in nodes.nodes


@pytest.mark.parametrize("name", OTHER)
def test_nodes_with_the_same_group_settings_work(name):
    nodes = Nodes(3, **{name: OTHER[name]})
    assert nodes.command(nodes.leader(), b"one")[0] == "ok"
    assert [n.counters()["other_settings"] for n in nodes.nodes.values()] == [0, 0, 0]


def test_a_node_that_joins_with_other_group_settings_gets_nothing(nodes):
    nodes.start(4, max_sessions=7)
    leader = nodes.leader()
    assert change(nodes, leader, [1, 2, 3], [4]) == 0
    assert nodes.command(leader, b"one")[0] == "ok"
    nodes.run(50)
    assert nodes.machines[4].commands == []
    assert nodes.nodes[4].counters()["other_settings_node"] == leader
    nodes.start(4)
    nodes.run(50)
    assert nodes.machines[4].commands == [b"one"]


def test_a_setting_counts_as_what_it_comes_to():
    """Election timeouts of the same length are the same; a default that is given is the default."""
    nodes = Nodes(3)
    nodes.stop(3)
    odd = nodes.start(3, election_ticks=20, tick_ns=500_000, max_sessions=1024)
    nodes.leader()
    nodes.run(50)
    assert odd.leader == nodes.leader()
    assert odd.counters()["other_settings"] == 0
