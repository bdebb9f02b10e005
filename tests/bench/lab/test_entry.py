"""A policy's code on disk: found again, made anew when what it is made of has changed, and never of what is refused."""

import subprocess
import sys

import pytest

from corelane.bench.lab import policy
from corelane.runtime.errors import Refused

TEXT = """
from corelane.bench.lab.acts import give


def mine(view, jobs, cores, kinds, memory, least=1):
    if view.n_waiting >= least and view.idle >= 0:
        give(view, cores, view.idle, view.waiting[0])
"""


OTHER = """
import sys
from numba.core.ccallback import CFunc
from corelane.bench.lab import loads, policy, world

CFunc.compile = None
sys.path.insert(0, sys.argv[1])
load = loads.Load((loads.Kind(),), loads.jobs([0, 10], [50.0, 50.0]))
print(world.World(load, world.Machine(1)).run(policy.load("mine:mine")).completion_ns.tolist())
"""


def kept(tmp_path):
    return list((tmp_path / "cache" / "policies").rglob("*.code"))


def test_code_is_found_again_until_something_changes(run, write_policy, tmp_path, monkeypatch):
    first = policy.load(write_policy(TEXT))
    assert len(kept(tmp_path)) == 1

    def never(self):
        raise AssertionError("it is compiled")

    monkeypatch.setattr("numba.core.ccallback.CFunc.compile", never)
    again = policy.load(write_policy(TEXT))
    ran = [run([0, 10], [50.0, 50.0], chosen=one).completion_ns.tolist() for one in (first, again)]
    assert ran == [[50, 90]] * 2
    with pytest.raises(Refused, match="it is compiled"):
        policy.load(write_policy(TEXT.replace(">= least", "> least")))


def test_another_process_compiles_nothing(write_policy, tmp_path):
    policy.load(write_policy(TEXT))
    words = [sys.executable, "-c", OTHER, str(tmp_path)]
    assert subprocess.run(words, check=True, capture_output=True, text=True).stdout == "[50.0, 90.0]\n"


def test_what_is_refused_is_not_kept(write_policy, tmp_path):
    for _ in range(2):
        with pytest.raises(Refused, match="raise"):
            policy.load(write_policy(TEXT + "    raise ValueError\n"))
    assert kept(tmp_path) == []


def test_without_a_place_it_is_compiled(run, write_policy, tmp_path, monkeypatch):
    spec = write_policy(TEXT)
    (tmp_path / "file").touch()
    monkeypatch.setenv("CORELANE_CACHE_DIR", str(tmp_path / "file"))
    assert run([0], [50.0], chosen=policy.load(spec)).completion_ns.tolist() == [50]
