"""Policies by name and of one's own; what they cannot do; the interface's page."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from corelane.bench.lab import engine, loads, policy, world
from corelane.bench.lab import table as t
from corelane.bench.lab.loads import Kind, Phase
from corelane.runtime.errors import ConfigError, CorelaneError, Refused

HEAD = "from corelane.bench.lab.acts import *\nfrom corelane.bench.lab.table import *\n"
ROOM = Path(policy.__file__).parent
NUMPY, MINE = "import numpy as np\n", "def mine(view, jobs, cores, kinds, memory):\n"
TAKE = "    if view.n_waiting and view.idle >= 0:\n        give(view, cores, view.idle, "


@pytest.mark.parametrize("name", policy.names())
def test_a_policy_here_says_where_it_is_from_and_is_short(name):
    found = policy.known(name)
    assert found.source != "a user's own"
    assert found.sweep.keys() <= found.settings.keys()
    assert len((ROOM / "policies" / f"{name}.py").read_text().splitlines()) <= 150


def test_settings_by_name():
    assert str(policy.known("priority", {"preempt": 1})) == "priority (preempt=1)"
    with pytest.raises(ConfigError, match=r"priority\.pre.*no such setting.*it has preempt"):
        policy.known("priority", {"pre": 1})
    with pytest.raises(ConfigError, match="whole number"):
        policy.known("priority", {"preempt": 0.5})
    with pytest.raises(ConfigError, match=r"none of that name.*fifo"):
        policy.load("fofi")
    with pytest.raises(ConfigError, match="cannot import nowhere"):
        policy.load("nowhere:mine")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("def mine(view, apps):\n    pass\n", "does not begin with view, jobs"),
        ("def mine(view, jobs, cores, kinds, memory, x):\n    pass\n", "x has no number"),
        (NUMPY + MINE + "    memory[0] = np.ones(view.n_jobs).sum()\n", "allocates"),
        (MINE + "    raise ValueError\n", "raise"),
        (MINE + "    jobs[0].remaining_ns = 1.0\n", "cannot compile"),
        (MINE + "    print(view.n_jobs)\n", "interpreter|raise|cannot compile"),
    ],
)
def test_what_is_refused(write_policy, body, why):
    with pytest.raises(Refused, match=why):
        policy.load(write_policy(body))


def tables(found, kind, work, *, events, seed=1):
    """What a policy has before it after so many events of a world of two jobs."""
    load = loads.Load((kind,), loads.jobs([0, 50], work))
    state, addresses, keep = world.World(load, world.Machine(2), seed=seed).prepared(found)
    engine.run(events, 1 << 60, np.uint64(found.address), addresses, state)
    return keep


def test_a_policy_sees_nothing_that_is_to_come(write_policy):
    """Two worlds that differ in all that is not shown: until that has come, all tables are the same, to the bit."""
    text = HEAD + "def mine(view, jobs, cores, kinds, memory):\n" + TAKE + "view.waiting[0])\n"
    found = policy.load(write_policy(text))
    one = Kind(declared_scaling=False)
    other = Kind(declared_scaling=False, serial=0.3, sync=0.1, phases=(Phase(0.4), Phase(0.6, 0.5, (1, 1, 1, 1))))
    first, second = tables(found, one, [1e5, 1e5], events=2), tables(found, other, [2e5, 9e5], events=2)
    assert [t.tobytes() for t in first[:5]] == [t.tobytes() for t in second[:5]]
    later = tables(found, one, [1e5, 1e5], events=3), tables(found, other, [2e5, 9e5], events=3)
    assert later[0][1].tobytes() != later[1][1].tobytes()  # now it has


def test_no_row_that_is_shown_has_a_name_of_what_is_hidden():
    shown = {name for dtype in (t.VIEW, t.JOB, t.CORE, t.KIND) for name in dtype.names}
    assert not shown & {"total_ns", "remaining_ns", "work_ns", "phase_end_ns", "phases", "loss_scale", "loss_floor"}


def test_only_an_oracle_is_given_the_future(run, write_policy):
    shortest = HEAD + (
        "def mine(view, jobs, cores, kinds, memory, future):\n"
        "    if view.idle < 0 or view.n_waiting == 0:\n        return\n"
        "    best, j = -1, view.waiting[0]\n"
        "    while j >= 0:\n"
        "        if best < 0 or future[j].remaining_ns < future[best].remaining_ns:\n            best = j\n"
        "        j = jobs[j].after\n"
        "    give(view, cores, view.idle, best)\n"
    )
    spec = write_policy(shortest)
    assert policy.load(spec).oracle
    assert not policy.load("fifo").oracle
    ran = run([0, 1, 2], [100.0, 50.0, 10.0], chosen=spec)
    assert ran.completion_ns.tolist() == [100, 159, 108]


def test_randomness_is_the_seeds_and_even(write_policy):
    text = HEAD + (
        "WORDS = (1000, 0, 0, 0)\n"
        "def mine(view, jobs, cores, kinds, memory):\n"
        "    for i in range(1000):\n        memory[i] = random(view)\n"
    )
    found = policy.load(write_policy(text))
    drawn = [tables(found, Kind(), [1.0, 1.0], events=1, seed=seed)[4] for seed in (1, 1, 2)]
    assert (drawn[0] == drawn[1]).all()
    assert (drawn[0] != drawn[2]).any()
    assert abs(drawn[0].mean() - 0.5) < 0.03
    assert 0 <= drawn[0].min() < 0.01 < 0.99 < drawn[0].max() < 1


def test_a_policy_that_asks_for_ever_is_told_so(run, write_policy):
    text = HEAD + (
        "def mine(view, jobs, cores, kinds, memory):\n"
        "    if view.n_waiting:\n        give(view, cores, 0, view.first)\n    else:\n        take(view, cores, 0)\n"
        "    wake_at(view, view.now_ns)\n"
    )
    with pytest.raises(CorelaneError, match="asks to be called again at once, 100000 times"):
        run([0], [10.0], chosen=write_policy(text))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("    give(view, cores, -1, view.first)\n", "a core that is not there"),  # it was lost, and nobody told
        ("    give(view, cores, view.n_cores, view.first)\n", "a core that is not there"),
        ("    if jobs[view.room + 1].declared_ns >= 0.0:\n        take(view, cores, 0)\n", "beyond the end of a table"),
        ("    memory[0] = 1.0\n", "beyond the end of a table.*WORDS"),
    ],
)
def test_who_leaves_the_tables_is_told_so(run, write_policy, body, why):
    with pytest.raises(CorelaneError, match=why):
        run([0, 5], [10.0, 10.0], chosen=write_policy(HEAD + MINE + body))


FOR_EVER = """
import sys
from corelane.bench.lab import loads, policy, world
from corelane.runtime.errors import CorelaneError

world.CALL_MOST_S = 0.2
sys.path.insert(0, sys.argv[1])
load = loads.Load((loads.Kind(),), loads.jobs([0, 10], [50.0, 50.0]))
try:
    world.World(load, world.Machine(1)).run(policy.load("mine:mine"))
except CorelaneError as error:
    print(error)
"""


def test_a_policy_that_does_not_come_back_is_told_so(write_policy, tmp_path):
    """Its run once hung, and heeded no interrupt."""
    write_policy(HEAD + MINE + "    while view.n_jobs >= 0:\n        view.random += 1\n")
    words = [sys.executable, "-c", FOR_EVER, str(tmp_path)]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=200)
    assert "it has not come back from a call for 0.2 s" in done.stdout


def test_the_interfaces_page_has_every_field_that_a_policy_sees():
    text = (ROOM / "README.md").read_text()
    words = set(re.findall(r"\w+", text))
    private = {"last", "waiting_last", "before", "ahead", "idle_before", "want", "changed", "n_refused", "n_memory"}
    private |= {"n_params", "wake_ns", "held_of_ns", "tail_core", "random", "astray"}
    missing = {n for dtype in (t.VIEW, t.JOB, t.CORE, t.KIND) for n in dtype.names} - words - private
    assert not missing


def test_the_interfaces_example_works(run, write_policy):
    blocks = re.findall(r"```python\n(.*?)```", (ROOM / "README.md").read_text(), re.S)
    spec = write_policy(blocks[0], name="least")
    ran = run([0, 0, 0], [3e6, 3e6, 1e6], chosen=spec)
    assert ran.over.all()
    assert ran.completion_ns[2] < ran.completion_ns[0]
    scope = {}
    exec(blocks[1], scope)
    assert scope["ran"].completion_ns.tolist() == [100, 100, 180]
