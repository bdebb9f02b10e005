"""Mistakes in the core and the log, made on purpose in a copy of a source file: seeds of the simulated world find each,
and where that took thousands of them, a scenario does (tests/apps/raft/c/*_scenarios.c).

Each is one change of text. A text that is not there any more fails the test: change the new one then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from cltest import CBuild, ProgramFailed
from cltest.planted import Planted


@dataclass(frozen=True)
class Mistake:
    """old becomes new in file, and so does each pair of `also`, and of `beside` in other files.

    seeds: that find it at the latest; 0: none has to. first: of these, where it would be one of hundreds. shows: a
    regex, of what they say or else the scenario.
    scenario: it finds it, too, without any seed. mode: 0 for the core alone, 1 for the real node, 2 with the store.
    outcomes: nobody looks into disks at promises. A mistake of neither seeds nor a scenario has a test of its own.
    """

    file: str
    old: str
    new: str
    seeds: int
    shows: str
    nodes: int = 5
    mode: int = 0
    outcomes: bool = False
    first: int = 1
    scenario: str = ""
    also: tuple[tuple[str, str], ...] = ()
    beside: tuple[tuple[str, str, str], ...] = ()

    def changes(self) -> list[tuple[str, str, str]]:
        """File, old and new text."""
        return [(self.file, old, new) for old, new in ((self.old, self.new), *self.also)] + list(self.beside)


ANY = (
    "completeness|safety|linearizable|undecided|matching|membership|dropped|durability|went back|restored|append-only"
    "|no progress"
)

STANDS_AGAIN = "stands again however long votes take to be written"

MISTAKES = {
    "commits entries of earlier terms by counting": Mistake(
        "apps/raft/core/replicate.c", " || raft_log_term(&r->log, n) != r->term)", ")", 3000, ANY
    ),
    "never sends to who trails what was held back, unless more comes": Mistake(
        "apps/raft/core/pace.c", "    spread_all(r);\n    r->stepped[1]", "    r->stepped[1]", 300, "no progress"
    ),
    "truncates entries that are the leader's": Mistake(
        "apps/raft/core/follow.c",
        "if (raft_slot(&r->log, index)->term == e->term)",
        "if (index <= r->commit)",
        4000,
        ANY,
    ),
    "votes for candidates whose log is behind": Mistake(
        "apps/raft/core/election.c",
        "return m->log_term > term || (m->log_term == term && m->index >= r->log.last);",
        "return m->log_term || !term || m->index;",
        1000,
        ANY,
    ),
    "votes for everybody who asks": Mistake(
        "apps/raft/core/election.c", "r->vote == m->from || (!r->vote && !r->leader)", "true", 300, ANY
    ),
    "half of the voters are enough": Mistake(
        "apps/raft/core/membership.c", "sorted[n / 2]", "sorted[(n - 1) / 2]", 1000, ANY, 4
    ),
    "a change of voters needs the new ones only": Mistake(
        "apps/raft/core/membership.c", "return m->n_outgoing ?", "return m->n_outgoing > 99 ?", 3000, ANY, 3
    ),
    "counts a write that a truncation overtook": Mistake(
        "apps/raft/core/ready.c",
        "slot->term != term || slot->generation != generation",
        "slot->term > term + generation + UINT32_MAX",
        3000,
        ANY,
    ),
    "keeps the log behind a snapshot of another": Mistake(
        "apps/raft/core/snapshot.c", "raft_log_term(&r->log, in.index) == in.term", "in.term", 20000, ANY, 3
    ),
    "answers reads that no majority confirmed": Mistake(
        "apps/raft/core/read.c", "        if (read->round > round)\n            break;\n", "", 2000, "linearizable"
    ),
    "goes on leading with a disk that hangs": Mistake(
        "apps/raft/core/core.c",
        "if (r->role == CL_RAFT_LEADER && raft_disk_hangs(r))",
        "if (!r->ticks)",
        300,
        "became durable",
    ),
    # Either alone costs time (elections.c finds the first), and the group gets over it. Nothing but slow.c shows both.
    "neither waits for votes that take long to be written nor takes them when they come late": Mistake(
        "apps/raft/core/election.c",
        "    ticks = cl_max(ticks, 2 *",
        "    return ticks;\n    ticks = cl_max(ticks, 2 *",
        300,
        "all disks are slow",
        also=(("            return late_vote(r);", "            return m->from ? 1 : late_vote(r);"),),
    ),
    STANDS_AGAIN: Mistake(
        "apps/raft/core/election.c",
        "    ticks = cl_max(ticks, 2 *",
        "    return ticks;\n    ticks = cl_max(ticks, 2 *",
        0,
        "",
    ),
    "promises a vote before it is durable": Mistake(
        "apps/raft/core/follow.c",
        "if (!raft_hard_ok(r))",
        "if (r->hard_seq == UINT64_MAX)",
        5000,
        "election safety|linearizable",
        nodes=3,
        outcomes=True,
        first=900,
    ),
    "commits what may not be the leader's": Mistake(
        "apps/raft/core/follow.c",
        "cl_min(m->commit, r->verified)",
        "cl_min(m->commit, r->log.last)",
        10000,
        ANY,
        scenario="commit",
    ),
    "acknowledges what may not be the leader's": Mistake(
        "apps/raft/core/follow.c",
        "m->index = cl_min(r->verified, r->log.durable);",
        "m->index = r->log.durable;",
        2000,
        ANY,
        scenario="commit",
    ),
    "acknowledges what may not be the leader's, on the real log": Mistake(
        "apps/raft/core/follow.c",
        "m->index = cl_min(r->verified, r->log.durable);",
        "m->index = r->log.durable;",
        1000,
        ANY,
        nodes=3,
        mode=1,
    ),
    "keeps what its log has behind a snapshot of another": Mistake(
        "apps/raft/node/recover.c", "record->tag == s->tag", "record->tag", 0, "is of another", scenario="snapshot"
    ),
    "answers who waits for an entry with another leader's in its place": Mistake(
        "apps/raft/node/client.c",
        "if (p->term == term)",
        "if (p->term <= term)",
        0,
        "another leader's",
        scenario="slot",
    ),
    "a lease that is too long": Mistake(
        "apps/raft/core/read.c",
        "+ r->config.election_ticks - lost;",
        "+ 2 * r->config.election_ticks;",
        1000,
        "leases",
    ),
    "a lease without a margin for clocks": Mistake(
        "apps/raft/core/read.c",
        "uint32_t lost = 1 + r->config.lease_margin_ticks;",
        "uint32_t lost = 0;",
        3000,
        "leases",
        first=240,
        scenario="margin",
    ),
    "a lease with half the margin for clocks": Mistake(
        "apps/raft/core/read.c",
        "uint32_t lost = 1 + r->config.lease_margin_ticks;",
        "uint32_t lost = 1 + r->config.lease_margin_ticks / 2;",
        10000,
        "leases",
        first=330,
        scenario="margin",
    ),
    "a lease by a round of which nobody knows any more when it began": Mistake(
        "apps/raft/core/read.c",
        " || r->round - round >= RAFT_ROUNDS ||",
        " ||",
        0,
        "makes a lease",
        scenario="rounds",
    ),
    "forgets the configuration that came with a snapshot": Mistake(
        "apps/raft/core/snapshot.c",
        "    r->base_members = in.members;\n    r->base_members_index = in.index;\n",
        "",
        0,
        "rolls back",
        scenario="rollback",
    ),
    "forgets the configuration whose entry it drops": Mistake(
        "apps/raft/core/membership.c",
        "    r->base_members = m;\n    r->base_members_index = at;\n",
        "    (void)m, (void)at;\n",
        0,
        "rolls back",
        scenario="rollback",
    ),
    "puts the chunks of two leaders' snapshots together": Mistake(
        "apps/raft/core/snapshot.c", " || in->from != m->from ||", " ||", 0, "another leader's", scenario="chunks"
    ),
    # Either alone changes nothing: a driver takes a chunk at once, and a newer term forgets those of the one before.
    "puts the chunks of two leaders' snapshots together, and keeps them in a newer term": Mistake(
        "apps/raft/core/snapshot.c",
        " || in->from != m->from ||",
        " ||",
        1000,
        "puts a snapshot together",
        beside=(
            (
                "apps/raft/core/core.c",
                "        if (!r->in.handed && !r->in.installing)\n            r->in = (struct raft_incoming){0};\n",
                "",
            ),
        ),
    ),
    "a command of a session that comes again is not refused again": Mistake(
        "apps/raft/node/client.c",
        "return node->sessions.all[i].status;",
        "return CL_RAFT_OK;",
        100,
        "answers with status",
        mode=1,
    ),
    "stands for election while it installs a snapshot": Mistake(
        "apps/raft/core/election.c", " || r->in.installing ||", " ||", 0, "stands while", scenario="install"
    ),
    "does not note that it leads no more after a tick": Mistake(
        "apps/raft/node/tick.c",
        "    cl_raft_tick(node->raft);\n    node_note_leader(node);",
        "    cl_raft_tick(node->raft);",
        0,
        "no leader's node",
        scenario="asked",
    ),
    "a lease that a transfer does not end": Mistake(
        "apps/raft/core/replicate.c",
        "    r->lease_lost = 1; /* its election does not wait for our lease */\n    r->lease_until = 0;\n",
        "",
        1000,
        "leases",
    ),
    "votes at once after a start, as if it had heard from no leader": Mistake(
        "apps/raft/core/core.c", "c.lease_reads ? c.election_ticks : 0;", "0;", 10000, "leases", first=6150
    ),
    "a promise that ends when a newer term is heard of": Mistake(
        "apps/raft/core/core.c",
        "granted)\n        raft_become_follower(r, m->term, 0);\n",
        "granted) {\n        raft_become_follower(r, m->term, 0);\n        r->promised_until = 0;\n    }\n",
        0,
        "lease is on",
        3,
        scenario="lease",
    ),
    "a promise that counts only for newer terms": Mistake(
        "apps/raft/core/election.c",
        "m->term == r->term && m->type == CL_RAFT_VOTE && raft_promised(r);",
        "false;",
        0,
        "lease is on",
        3,
        scenario="lease",
    ),
    "answers by a lease without a look at the clock": Mistake(
        "apps/raft/node/client.c", "node_advance_ticks(node); /* the", "(void)0; /* the", 3000, "leases", 3, mode=1
    ),
    "lets those in who came back without a log": Mistake(
        "apps/raft/node/incarnations.c",
        "const struct node_incarnation *known = node_incarnation_find(l, from);\n"
        "    bool same = known && incarnation && known->incarnation == incarnation;",
        "struct node_incarnation *known = node_incarnation_find(l, from);\n"
        "    bool same = known && (node->config.log ? known->incarnation == incarnation"
        " : (known->incarnation = incarnation));",
        1000,
        ANY,
        mode=1,
        nodes=3,
    ),
    "lets those in whose log was made again": Mistake(
        "apps/raft/node/incarnations.c",
        "const struct node_incarnation *known = node_incarnation_find(l, from);\n"
        "    bool same = known && incarnation && known->incarnation == incarnation;",
        "struct node_incarnation *known = node_incarnation_find(l, from);\n"
        "    bool same = known && (node->config.log ? (known->incarnation = incarnation)"
        " : known->incarnation == incarnation);",
        1000,
        ANY,
        mode=1,
        nodes=3,
    ),
    "takes the voters from what it was started with, not from its log": Mistake(
        "apps/raft/node/recover.c",
        "                             &members);",
        "                             s->number ? &members : NULL);",
        1000,
        ANY,
        mode=1,
        nodes=3,
    ),
    "stops not when it hears of a former incarnation of its own": Mistake(
        "apps/raft/node/incarnations.c",
        "f->to_incarnation == c->incarnation; i++",
        "f->to_incarnation == 0; i++",
        300,
        "no progress",
        mode=1,
    ),
    "a channel whose frames of several pieces never come": Mistake(
        "apps/raft/transport/channel.c", "data + (uint64_t)i * size, n)", "data, n)", 300, "no progress", mode=1
    ),
    "forgets who waits when it leads no more": Mistake(
        "apps/raft/node/answer.c", "i <= node->pending_last", "i < node->applied", 100, "an answer", mode=1
    ),
    "a leader that stops forgets who reads": Mistake(
        "apps/raft/node/answer.c", "node->state != CL_RAFT_STOPPED && ", "", 300, "without an answer", mode=1, first=100
    ),
    "each replica's own clock for the log's": Mistake(
        "apps/raft/node/client.c",
        "node_clock_advance(node, get64(p + 24));",
        "node->clock_ms = node->config.env.wall_ms(node->config.env.arg);",
        20,
        "state-machine safety|log's clock",
        mode=1,
    ),
    "snapshots without the log's clock": Mistake(
        "apps/raft/node/snapshot.c",
        "node_clock_advance(node, get64(b->data + 8));",
        "",
        0,
        "log's clock",
        scenario="clock",
    ),
    "takes a leader's wall clock as it is": Mistake(
        "apps/raft/node/clock.c", "    if (s->ms)\n", "    if (!s->ms)\n", 100, "clock", mode=1
    ),
    "forgets at the beginning of a reign what the log says of the time": Mistake(
        "apps/raft/node/clock.c",
        "*s = (struct node_stamp){node->clock_ms, node->clock_ns};",
        "*s = (struct node_stamp){0};",
        100,
        "clock",
        mode=1,
        first=30,
    ),
    "a reign begins with what is applied, whatever else the log holds": Mistake(
        "apps/raft/node/clock.c", "i = node->applied + 1;", "i = UINT64_MAX;", 0, "stands still", scenario="reign"
    ),
    "a reign begins without what the clock was set to": Mistake(
        "apps/raft/node/clock.c",
        " || (stamp_of(&e) && node_kind(get64(e.data)) == CL_RAFT_CLOCK_SET))",
        ")",
        0,
        "takes back",
        scenario="reign",
    ),
    "sessions end when the clock is set": Mistake(
        "apps/raft/node/clock.c",
        "    raft_sessions_shift(&node->sessions, node->clock_ms, stamp_ms);\n",
        "",
        0,
        "a session ends",
        scenario="set",
    ),
    "of two random words the last counts": Mistake(
        "apps/raft/node/client.c",
        "if (!node->seeded)\n",
        "if (node->config.machine.seed)\n",
        0,
        "count",
        scenario="word",
    ),
    "a snapshot of before the random word is as if of after it": Mistake(
        "apps/raft/node/snapshot.c", "node->seeded ? 0 : UNSEEDED", "0", 0, "of before", scenario="word"
    ),
    "a snapshot of after the random word is as if of before it": Mistake(
        "apps/raft/node/snapshot.c",
        "node->seeded = !(flags & UNSEEDED) ||",
        "node->seeded =",
        0,
        "another",
        scenario="word",
    ),
    "takes a log of any newer version": Mistake(
        "apps/raft/node/recover.c",
        "version < CL_RAFT_NODE_VERSION_LEAST ||\n        version > CL_RAFT_NODE_VERSION)",
        "version < CL_RAFT_NODE_VERSION_LEAST)",
        0,
        "takes a log of version 6",
        scenario="version",
    ),
    "leaves the version before in a log of which it writes entries": Mistake(
        "apps/raft/node/recover.c",
        "d->hard = get32(meta + 4) != CL_RAFT_NODE_VERSION;",
        "",
        0,
        "still",
        scenario="version",
    ),
    "does not check commands that others pass on": Mistake(
        "apps/raft/node/client.c",
        "if (kind == CL_RAFT_APPLY && is_refused(",
        "if (kind == CL_RAFT_APPLY && !requester->from && is_refused(",
        0,
        "not for the log",
        scenario="checked",
    ),
    "takes all that its log holds for committed when it starts again": Mistake(
        "apps/raft/node/recover.c",
        "get64(record->data) >> NODE_KIND_BITS",
        "record->index",
        300,
        f"{ANY}|was ever committed",
        mode=1,
    ),
    "leads by the word of a node whose log went back": Mistake(
        "apps/raft/core/replicate.c", "return !p->gone_back;", "return true;", 0, "leads by", scenario="gone_back"
    ),
    "counts on what a log held before it went back": Mistake(
        "apps/raft/core/replicate.c", "p && !p->gone_back ?", "p ?", 0, "counts on a log", scenario="gone_back"
    ),
    "gives up what is committed for a leader that lacks it": Mistake(
        "apps/raft/core/follow.c",
        "        if (index <= r->commit)\n            return CONTRADICTS;\n",
        "",
        0,
        "gives up entry",
        scenario="contradicts",
    ),
    "an image without the seed of its hash": Mistake(
        "apps/kv/image.c", ".seed = store->seed}", ".seed = 0}", 300, "restored|no progress", mode=2
    ),
    "takes a damaged record for a good one": Mistake(
        "libos/storage/log/view.c",
        "r->crc != cl_log_record_crc(seed, r)",
        "r->crc + cl_log_record_crc(seed, r) == 0",
        4000,
        ANY + "|never failed",
        mode=1,
        first=40,
    ),
    "takes what reads back for durable, and does not write it again": Mistake(
        "libos/storage/log/again.c",
        "if (r->acknowledged_lsn >= log->view.lsn ||",
        "if (r->acknowledged_lsn <= log->view.lsn ||",
        2000,
        ANY + "|forgotten something",
        mode=1,
        outcomes=True,
        first=60,
    ),
    "says that what was acknowledged is confirmed, and writes nothing": Mistake(
        "libos/storage/log/confirm.c",
        "    cl_log_super_want(log, NULL);\n",
        "    cl_log_confirm_said(log, log->view.lsn);\n",
        4000,  # one seed in 350: each opening confirms what it finds, and nodes are started more often
        ANY,
        mode=1,
        nodes=5,
        first=870,
    ),
    "takes damage for a torn end": Mistake(
        "libos/storage/log/judge.c",
        "p->tail = r->proof ?",
        "p->tail = r->proof && log->area_id == 0 ?",
        500,
        ANY,
        mode=1,
        outcomes=True,
        first=240,
    ),
    "lets items expire by each replica's own clock": Mistake(
        "apps/raft/node/client.c",
        "node_clock_advance(node, get64(p + 24));",
        "node->clock_ms = node->config.env.wall_ms(node->config.env.arg);",
        200,
        "state-machine safety|log's clock",
        mode=2,
    ),
    # What seeds found before it was mended: they find it again if it comes back.
    "who is left out by a configuration that may not be committed never stands": Mistake(
        "apps/raft/core/election.c",
        "    if (r->members_index <= r->commit)\n        return false;\n    raft_members_find",
        "    if (r->members_index)\n        return false;\n    raft_members_find",
        5000,
        "no progress",
        nodes=3,
        first=1200,
    ),
    "a snapshot begun anew waits for a receiver that has kept what came before": Mistake(
        "apps/raft/core/snapshot.c",
        "if (p->snap_sent < p->snap_acked) {",
        "if (p->snap_sent > m->total + m->offset) {",
        3000,
        "no progress",
        nodes=3,
        first=1700,
    ),
    "numbers what it passes on as in a former incarnation": Mistake(
        "apps/raft/node/node.c",
        "node->ticket_oldest = number_of_incarnation(&node->config);",
        "node->ticket_oldest = 1;",
        3000,
        "linearizable|answers with",
        mode=1,
        first=80,
    ),
    "waits for ever for the answer to what it passed on": Mistake(
        "apps/raft/node/answer.c",
        "if (!all && node->now_ns < f->at_ns + wait_ns)",
        "if (!all && wait_ns)",
        300,
        "no progress",
        mode=1,
    ),
    "forgets the count of cas numbers in an image": Mistake(
        "apps/kv/image.c",
        ".cas_count = p->cas_count,",
        ".cas_count = p->cas_count / 2,",
        200,
        "state-machine safety",
        mode=2,
    ),
    # The same, and one seed in thousands or none finds it again.
    "applies as far ahead of its disk as the log is committed": Mistake(
        "apps/raft/node/room.c",
        "return d ? cl_log_free_bytes(d->log) / 2 / (cl_log_max_bytes(d->log) + CL_LOG_BLOCK_BYTES) : UINT32_MAX;",
        "return d ? UINT32_MAX : 0;",
        0,
        "full of what it applied",
        scenario="ahead",
    ),
    "takes more commands than areas have room for before any is committed": Mistake(
        "apps/raft/node/room.c",
        "+ room.uncommitted_bytes > cl_log_ring_bytes(d->log) / 4;",
        "+ room.uncommitted_bytes > UINT64_MAX / 2;",
        0,
        "full of what cannot be committed",
        scenario="crowded",
    ),
    "begins a snapshot anew whenever a chunk of it is refused": Mistake(
        "apps/raft/core/snapshot.c",
        "        p->snap_wait = 1;\n",
        "",
        0,
        "bring each other on",
        scenario="refusals",
    ),
}


SEEDS = "tests/apps/raft/sim/c/seeds.c"
SCENARIOS = {  # the others are of the core
    "alike": ("clock", "reign", "set", "version", "word"),
    "area": ("ahead", "checked", "crowded"),
    "node": ("asked", "slot", "snapshot"),
}
ELECTIONS = (100, 20240607, 5, 50, 100)  # runs, seed, nodes, ...: as test_elections.py has them


@pytest.fixture(scope="module")
def build() -> Callable[[str, str], Callable[..., str]]:
    """build(name, source): a program of which this mistake is in the library."""
    changes = {name: mistake.changes() for name, mistake in MISTAKES.items()}
    planted = Planted(CBuild("plain"), "raft", changes)
    return lambda name, source: planted.program(source, name)


def source_of(scenario: str) -> str:
    of = next((of for of, names in SCENARIOS.items() if scenario in names), "core")
    return f"tests/apps/raft/{'core' if of == 'core' else 'node'}/c/{of}_scenarios.c"


@pytest.mark.parametrize("scenario", sorted({m.scenario for m in MISTAKES.values() if m.scenario}))
def test_scenarios_without_a_mistake(scenario, c_program):
    assert c_program(source_of(scenario), one_thread=True)(scenario) == "ok\n"


@pytest.mark.parametrize("name", [n for n, m in MISTAKES.items() if m.scenario])
def test_mistakes_are_found_by_a_scenario(name, build):
    mistake = MISTAKES[name]
    with pytest.raises(ProgramFailed, match=r"leader's|lease is on" if mistake.seeds else mistake.shows):
        build(name, source_of(mistake.scenario))(mistake.scenario)


def test_standing_again_however_long_votes_take_to_be_written_is_found_by_elections(build):
    """Seeds do not show it: their groups get over it in time, as a candidate that has given up takes late votes."""
    said = build(STANDS_AGAIN, "tests/apps/raft/core/c/elections.c")(*ELECTIONS, 16_000, 1000, 0, 1).split()
    got = dict(zip(said[::2], map(int, said[1::2]), strict=True))
    assert got["p99_us"] > 90_000, got  # the bound of the same world in test_elections.py


@pytest.mark.parametrize("name", [n for n, m in MISTAKES.items() if m.seeds])
def test_mistakes_of_the_core_are_found(name, build):
    mistake = MISTAKES[name]
    with pytest.raises(ProgramFailed) as caught:
        build(name, SEEDS)(mistake.mode, mistake.first, mistake.seeds, mistake.nodes, int(mistake.outcomes))
    reason = str(caught.value).rpartition("seed ")[2]
    assert re.search(mistake.shows, reason), reason
