"""Mistakes in the core, made on purpose in a copy of one source file: seeds of the simulated world find every one.

Each is one change of text. A text that is not there any more fails the test: change the new one then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from cltest import CBuild, ProgramFailed
from cltest.cbuild import ROOT, setup_py


@dataclass(frozen=True)
class Mistake:
    """file: below apps/raft. old becomes new. seeds: that find it at the latest. shows: how (a regular expression)."""

    file: str
    old: str
    new: str
    seeds: int
    shows: str
    nodes: int = 5


ANY = (
    "completeness|safety|linearizable|undecided|matching|membership|dropped|durability|went back|restored|append-only"
    "|no progress"
)

MISTAKES = {
    "commits entries of earlier terms by counting": Mistake(
        "replicate.c", " || raft_log_term(&r->log, n) != r->term)", ")", 3000, ANY
    ),
    "truncates entries that are the leader's": Mistake(
        "follow.c", "if (raft_slot(&r->log, index)->term == e->term)", "if (index <= r->commit)", 4000, ANY
    ),
    "votes for candidates whose log is behind": Mistake(
        "election.c",
        "return m->log_term > term || (m->log_term == term && m->index >= r->log.last);",
        "return m->log_term || !term || m->index;",
        1000,
        ANY,
    ),
    "votes for everybody who asks": Mistake(
        "election.c", "r->vote == m->from || (!r->vote && !r->leader)", "true", 300, ANY
    ),
    "half of the voters are enough": Mistake("membership.c", "sorted[n / 2]", "sorted[(n - 1) / 2]", 1000, ANY, 4),
    "a change of voters needs the new ones only": Mistake(
        "membership.c", "n_outgoing ?", "n_outgoing > 99 ?", 3000, ANY, 3
    ),
    "counts a write that a truncation overtook": Mistake(
        "core.c",
        "slot->term != term || slot->generation != generation",
        "slot->term > term + generation + UINT32_MAX",
        3000,
        ANY,
    ),
    "keeps the log behind a snapshot of another": Mistake(
        "snapshot.c", "raft_log_term(&r->log, in.index) == in.term", "in.term", 20000, ANY, 3
    ),
}


def mutated(tmp: Path, mistake: Mistake) -> Path:
    """A copy of the source with the mistake in it, that compiles anywhere."""
    text = (ROOT / "apps" / "raft" / mistake.file).read_text()
    assert text.count(mistake.old) == 1, f"apps/raft/{mistake.file} has {text.count(mistake.old)} times {mistake.old!r}"
    text = text.replace(mistake.old, mistake.new)
    text = re.sub(r'#include "(?!\.\.)([^"]+)"', r'#include "apps/raft/\1"', text)
    text = re.sub(r'#include "\.\./\.\./([^"]+)"', r'#include "\1"', text)
    out = tmp / mistake.file
    out.write_text(text)
    return out


@pytest.fixture(scope="module")
def build() -> Callable[[Path, Mistake], Callable[..., str]]:
    builder = CBuild("plain")

    def make(tmp: Path, mistake: Mistake) -> Callable[..., str]:
        original = Path("apps/raft") / mistake.file
        sources = [s for s in setup_py().c_sources() if s != original]
        program = tmp / "seeds.c"
        program.write_text((ROOT / "tests/apps/raft/sim/c/seeds.c").read_text())
        binary = builder.build(program, [*sources, mutated(tmp, mistake)])
        return builder.runner(binary)

    return make


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_of_the_core_are_found(name, build, tmp_path):
    mistake = MISTAKES[name]
    seeds = build(tmp_path, mistake)
    with pytest.raises(ProgramFailed) as caught:
        seeds(0, 1, mistake.seeds, mistake.nodes)
    reason = str(caught.value).rpartition("seed ")[2]
    assert re.search(mistake.shows, reason), reason
