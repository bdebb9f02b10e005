"""Raft's batches in virtual time: a group of real nodes that is the same each time, its rule beside fixed settings."""

from __future__ import annotations

import io

import pytest

from corelane.bench.harness.session import Session
from corelane.bench.log.modelled import Disk
from corelane.bench.raft import batches
from corelane.bench.raft.batches import ADAPTIVE, CLIENTS, Setting, measure
from corelane.runtime.errors import CorelaneError

DISK = Disk(4, 60, 0.1)


def test_the_same_group_gives_the_same_numbers() -> None:
    assert measure(DISK, 5, ADAPTIVE, 8) == measure(DISK, 5, ADAPTIVE, 8)


def test_a_command_alone_takes_the_links_and_the_disk() -> None:
    got = measure(DISK, 50, ADAPTIVE, 1)
    assert 4 * 50 + 60 < got.us[len(got.us) // 2] < 4 * 50 + 60 + 30, "both disks write at the same time"
    assert got.commands_per_batch == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("commands", [1, 16, 64])
def test_a_fixed_batch_has_so_many_commands(commands: int) -> None:
    got = measure(DISK, 5, Setting(commands, 1000 if commands > 1 else 0, 1))
    assert got.commands_per_batch >= commands if commands > 1 else got.commands_per_batch > 1
    alone = measure(DISK, 5, Setting(commands, 300 if commands > 1 else 0, 1), 1)
    waited = 300 if commands > 1 else 0
    assert waited < alone.us[len(alone.us) // 2] < waited + 120, "its first one waits no longer"


def test_more_batches_on_their_way_are_smaller() -> None:
    one, four = (measure(DISK, 50, Setting(1, 0, batches)) for batches in (1, 4))
    assert four.commands_per_batch < one.commands_per_batch


def test_the_rule_beside_fixed_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "FIXED", batches.FIXED[::4])
    session = Session("raft", seconds=0.1, progress=io.StringIO())
    batches.run(session, whole=False)
    ours, best, drawn, _ = session.arms
    assert ours["name"] == "modelled flash, network, three cores: adaptive"
    assert ours["clients"] == best["clients"] == CLIENTS
    swept = session.settings["modelled_commands_per_s"]["flash, network, three cores"]
    assert swept.keys() == {str(s) for s in (ADAPTIVE, *batches.FIXED)}
    assert (
        best["per_s"] == max(per_s for name, per_s in swept.items() if name != str(ADAPTIVE)) == swept[best["setting"]]
    )
    figure = session.figures["raft.batching_modelled"]
    assert figure["value"] == pytest.approx(ours["per_s"] / best["per_s"])
    assert figure["beside"]["worst of drawn worlds"] == drawn["part_of_best"]
    assert figure["beside"]["from the first command on"] == ours["part_from_start"] < ours["part_of_best"]


def test_drawn_worlds_are_the_same_for_a_seed() -> None:
    assert batches.drawn_worlds(5, 3) == batches.drawn_worlds(5, 3) != batches.drawn_worlds(5, 4)


def test_commands_that_arrive_by_themselves_are_all_answered() -> None:
    got = measure(DISK, 50, ADAPTIVE, due_ns=[1000 * i * 100 for i in range(200)], warm=0, rounds=10**6)
    assert 190 <= len(got.us) <= 200, "but for those that came before the measuring began"
    assert got.refused == 0
    assert got.us[0] > 4 * 50 + 60


def test_what_the_model_does_not_take_is_refused() -> None:
    with pytest.raises(CorelaneError, match="1 to 64 lanes"):
        measure(Disk(65, 60, 0.1), 5, ADAPTIVE)
