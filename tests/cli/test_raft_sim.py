"""corelane raft-sim: seeds that pass, one seed's trace, what a failure prints."""

from __future__ import annotations

import json

from corelane.apps.raft.sim import world
from corelane.cli.main import main


def test_seeds_that_pass(capsys):
    assert main(["raft-sim", "--seeds", "20", "--nodes", "3"]) == 0
    assert "20 seeds of 3 nodes passed" in capsys.readouterr().out


def test_sums_as_json(capsys):
    assert main(["raft-sim", "--seeds", "10", "--json", "--threads", "2"]) == 0
    sums = json.loads(capsys.readouterr().out)
    assert sums["runs"] == 10
    assert sums["failed_seed"] is None


def test_the_trace_of_a_seed(capsys):
    assert main(["raft-sim", "--seed", "3", "--trace"]) == 0
    out = capsys.readouterr().out
    assert "leads term" in out
    assert "1 seeds of 5 nodes passed" in out


def test_a_failure_says_how_to_see_it_again(capsys, monkeypatch):
    usual = world.run_many

    def with_a_mistake(*args, **more):
        return usual(*args, **more, mutant="no-sessions")

    monkeypatch.setattr(world, "run_many", with_a_mistake)
    assert main(["raft-sim", "--seeds", "30", "--steps", "2000"]) == 1
    out = capsys.readouterr().out
    assert "not linearizable" in out
    assert "corelane raft-sim --nodes 5 --mode core --seed" in out
    assert "--trace --steps 2000" in out


def test_what_it_does_not_take(capsys):
    assert main(["raft-sim", "--nodes", "40"]) == 2
    assert "1 to 9" in capsys.readouterr().err
    for option in ("--seeds", "--steps"):
        assert main(["raft-sim", option, "0"]) == 2
        assert "is not a whole number from 1" in capsys.readouterr().err
