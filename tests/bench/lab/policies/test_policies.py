"""Each policy on a production cluster's mix, and on a few jobs whose times can be told by hand."""

import re

import numpy as np
import pytest
from cltest.cbuild import ROOT

from corelane.bench.lab import boxed, engine, generators, invariants, loads, policy, world
from corelane.bench.lab import table as t
from corelane.bench.lab.loads import Kind, Phase

NAMES = policy.names()
MOST_LINES = 150


@pytest.mark.soak(takes_s=10)
@pytest.mark.parametrize("name", NAMES)
def test_all_jobs_end_and_whoever_holds_something_keeps_it(name):
    load = generators.make("cluster", {"jobs": 300, "load": 0.9}, 16, 5)
    chosen = policy.load(name)
    machine = world.Machine(16, speeds=generators.SPEEDS, seats=2, loops=2, capacity=generators.CAPACITY)
    for on in (world.Machine(16, speeds=generators.SPEEDS), machine):
        ran = world.World(load, on, interval_ns=100_000 if chosen.ticks else 0).run(chosen)
        refused = ran.jobs["outcome"] == t.TURNED_AWAY
        assert (ran.over | refused).all()
        assert not refused.any() or name == "elasticflow"
        assert ran.refused == 0
        # Nobody has done more than the cores can that it may use.
        most = np.array([kind.max_cores for kind in load.kinds])
        fastest = max(generators.SPEEDS) * most[load.jobs["kind"]]
        assert (ran.completion_ns >= load.jobs["work_ns"] / fastest - 2).all()
    assert invariants.check(name, range(1, 26)) == []


@pytest.mark.soak(takes_s=5)
@pytest.mark.parametrize("name", NAMES)
def test_gangs_whose_memory_is_short_get_all_of_their_cores_or_none(name):
    """A loop has the memory for two cores of some gangs of three. Looked at one by one, each of the three fitted."""
    sizes = ((1, 1, 0.6), (2, 2, 0.4), (2, 4, 0.9), (3, 3, 1.4))
    kinds = tuple(Kind(min_cores=a, max_cores=b, phases=(Phase(use=0.5, demand=(0, 0, m, 0)),)) for a, b, m in sizes)
    rng = np.random.default_rng(3)
    work = rng.exponential(9000.0, 60) + 100.0
    rows = loads.jobs(np.arange(60) * 3000, work, rng.integers(0, 4, 60), declared_ns=work)
    machine = world.Machine(8, seats=2, loops=2, capacity=(1.0, 1.0, 0.8, 1.0))
    chosen = policy.load(name)
    ran = world.World(loads.Load(kinds, rows), machine, interval_ns=10_000 if chosen.ticks else 0).run(chosen)
    assert ran.over.all()
    assert ran.refused == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_has_its_source_its_length_and_its_page(name):
    path = ROOT / "bench" / "lab" / "policies" / f"{name}.py"
    assert len(path.read_text().splitlines()) <= MOST_LINES
    text = path.read_text()
    assert "\nSOURCE = " in text
    assert "\nSWEEP" in text
    page = ROOT / "docs" / "lab" / f"{name}.md"
    if 'SOURCE = "a baseline' in text or 'SOURCE = "the baseline' in text:
        assert f"`{name}`" in (ROOT / "docs" / "lab" / "baselines.md").read_text()
    else:
        said = page.read_text()
        for heading in (
            "What it decides",
            "What it sees",
            "What its paper claims",
            "What we measured",
            "Does not deal",
        ):
            assert heading in said, f"{page}: {heading}"
    assert f"`{name}`" in (ROOT / "docs" / "lab-policies.md").read_text()


def test_what_was_measured_is_said_to_be_simulated_and_claims_no_device_that_is_not_there():
    pages = sorted((ROOT / "docs" / "lab").glob("*.md"))
    assert len(pages) > 10
    for page in pages:
        _, heading, rest = page.read_text().partition("## What we measured\n")
        measured = rest.partition("\n## ")[0].lower()
        assert "simulated" in measured or not heading, page
        assert not re.search(r"joule|watt|gpu|network", measured), page


def test_each_policy_runs_on_the_box_or_the_page_says_why_not():
    text = (ROOT / "docs" / "lab-policies.md").read_text()
    said = text[text.index("\n| on the box |") : text.index("What the iokernel itself decides")]
    assert {name for name in NAMES if f"`{name}`" not in said} == set()
    compared = "".join(line for line in said.splitlines() if "bench lab" in line or "the same, with" in line)
    cases = {case.policy for case in (*boxed.CASES, *boxed.RECORDED)}
    assert {name for name in NAMES if f"`{name}`" in compared} == cases


def test_round_robin_shares_by_quanta(run):
    ran = run([0, 0], [30_000.0, 30_000.0], chosen="round_robin", settings={"quantum_us": 10.0})
    assert ran.completion_ns.tolist() == [50_000, 60_000]


@pytest.mark.soak(takes_s=10)
def test_shortest_remaining_preempts(run):
    ran = run([0, 10], [100.0, 20.0], chosen="srpt")
    assert ran.completion_ns.tolist() == [120, 20]
    assert run([0, 90], [100.0, 20.0], chosen="srpt").completion_ns.tolist() == [100, 30]


def test_the_earliest_deadline_preempts(run):
    ran = run([0, 10], [100.0, 20.0], chosen="edf", deadline_ns=[0, 25])
    assert ran.completion_ns.tolist() == [120, 20]


def test_fair_shares_go_by_weight(run):
    """With quanta that are small beside the jobs, who weighs 3 is done when the other has had a third of that."""
    ran = run([0, 0], [3e6, 9e6], chosen="fair", weight=[1.0, 3.0], settings={"quantum_us": 10.0})
    assert ran.completion_ns[1] == pytest.approx(12e6, abs=3e4)
    ran = run([0, 0], [3e6, 3e6], chosen="fair", weight=[1.0, 3.0], settings={"quantum_us": 10.0})
    assert ran.completion_ns.tolist() == pytest.approx([6e6, 4e6], abs=3e4)


def test_fair_shares_are_by_quanta_whoever_comes(run):
    """Each job that came once took a core from one that ran."""
    at = np.arange(40) * 1000
    ran = run(at, np.full(40, 10_000.0), cores=4, chosen="fair", settings={"quantum_us": 12.0})
    assert ran.gifts == 40
    assert not ran.jobs["preempted"].any()


@pytest.mark.soak(takes_s=10)
def test_the_static_setting_is_what_is_given_to_each(run):
    kind = Kind(max_cores=4)
    for each, last in ((1, 100), (2, 100), (4, 100)):
        ran = run([0, 0, 0, 0], [100.0] * 4, (kind,), cores=4, chosen="static", settings={"each": each})
        assert ran.completion_ns.max() == last
        assert ran.completion_ns.min() == 100 / each


def test_who_has_had_much_gives_way_to_who_has_had_little(run):
    settings = {"first_us": 50.0, "quantum_us": 10.0, "promote": 0.0}
    ran = run([0, 60_000], [200_000.0, 40_000.0], chosen="tiresias", settings=settings)
    assert ran.completion_ns.tolist() == [240_000, 40_000]
    # Within a level by arrival: the first one has not had 50 us yet.
    ran = run([0, 20_000], [45_000.0, 40_000.0], chosen="tiresias", settings=settings)
    assert ran.completion_ns.tolist() == [45_000, 65_000]


@pytest.mark.soak(takes_s=10)
def test_who_has_waited_long_is_promoted(run):
    at, work = [0, *range(60_000, 2_000_000, 40_000)], [400_000.0, *[40_000.0] * 49]
    last = {}
    for promote in (0.0, 2.0):
        settings = {"first_us": 50.0, "quantum_us": 10.0, "promote": promote}
        last[promote] = run(at, work[: len(at)], chosen="tiresias", settings=settings).completion_ns[0]
    assert last[2.0] < 0.8 * last[0.0]


@pytest.mark.soak(takes_s=10)
def test_the_gittins_index_learns_that_the_long_ones_go_on(run):
    """After many short jobs, one that has outlived them gives way to a new one."""
    at = [*range(0, 1_000_000, 20_000), 2_000_000, 2_100_000]
    work = [10_000.0] * 50 + [400_000.0, 10_000.0]
    ran = run(at, work, chosen="gittins", settings={"quantum_us": 5.0})
    assert ran.completion_ns[-1] < 15_000


@pytest.mark.soak(takes_s=10)
def test_short_requests_overtake_by_quanta_or_by_reserved_cores(run):
    kinds = (Kind(cls=0), Kind(cls=1))
    at = [0, 0, *range(1000, 9000, 1000)]
    work, kind = [1e6, 1e6] + [100.0] * 8, [1, 1] + [0] * 8
    assert run(at, work, kinds, kind=kind, cores=2).completion_ns[2] > 900_000
    quick = run(at, work, kinds, kind=kind, cores=2, chosen="shinjuku", settings={"quantum_us": 1.0})
    assert quick.completion_ns[2:].max() < 12_000
    # DARC learns from the first window, and then keeps a core for the short class although long ones wait.
    at, kind = np.arange(400) * 2_000, (np.arange(400) % 4 == 3).astype(int)
    work = np.where(kind == 1, 11_000.0, 100.0)
    ran = run(at, work, kinds, kind=kind, cores=2, chosen="darc", settings={"window": 100})
    late = (np.arange(400) > 250) & (kind == 0)
    assert ran.completion_ns[late].max() == 100
    fifo = run(at, work, kinds, kind=kind, cores=2)
    assert fifo.completion_ns[late].max() > 1000


@pytest.mark.soak(takes_s=10)
def test_reserved_cores_are_lent_and_taken_back_or_kept(run):
    kinds = (Kind(guaranteed=True), Kind(guaranteed=False, cls=1))
    at, work, kind = [0, 0, 500], [1e6, 1e6, 100.0], [1, 1, 0]
    lent = run(at, work, kinds, kind=kind, cores=2, chosen="caladan", settings={"reserved": 0.5})
    assert lent.completion_ns.tolist() == [1_000_000, 1_000_100, 100]
    kept = run(at, work, kinds, kind=kind, cores=2, chosen="caladan", settings={"reserved": 0.5, "total": 1})
    assert kept.completion_ns.tolist() == [1_000_000, 2_000_000, 100]


@pytest.mark.soak(takes_s=10)
def test_packing_that_gains_nothing_is_undone(run):
    whole, half = Kind(), Kind(phases=(Phase(use=0.5),))
    settings = {"quantum_us": 1e6, "trial_us": 10.0, "least": 1.05}
    ran = run([0, 0], [1e6, 1e6], (whole,), seats=2, chosen="gandiva", settings=settings)
    assert ran.jobs["preempted"].sum() == 1  # after the trial
    assert ran.completion_ns.min() == pytest.approx(1_005_000, abs=10)
    ran = run([0, 0], [1e6, 1e6], (half,), seats=2, chosen="gandiva", settings=settings)
    assert ran.completion_ns.tolist() == [1_000_000, 1_000_000]


@pytest.mark.soak(takes_s=10)
def test_a_job_grows_while_that_makes_it_faster(run):
    grows = Kind(max_cores=4, serial=0.05)
    settings = {"quantum_us": 1e6}
    ran = run([0, 1000], [1e6, 10.0], (grows, Kind()), kind=[0, 1], cores=4, chosen="gandiva", settings=settings)
    assert ran.completion_ns[0] < 0.7e6


@pytest.mark.soak(takes_s=10)
def test_a_job_that_is_spread_over_loops_moves_into_one_when_there_is_room(run):
    one, gang = Kind(), Kind(min_cores=2, max_cores=2, spread=0.5)
    # The gang comes while each loop has one core, goes on at 1 there, and at 2 once it has a loop.
    jobs = {"at": [0, 0, 0, 0, 200], "work": [1000.0, 100.0, 1e6, 100.0, 10_000.0], "kinds": (one, gang)}
    more = {"kind": [0, 0, 0, 0, 1], "cores": 4, "loops": 2, "chosen": "gandiva"}
    costs = world.Costs(loop_ns=300)
    moved, stays = (run(**jobs, **more, costs=costs, settings={"migrate": m}).completion_ns[4] for m in (1, 0))
    assert stays == 10_000
    assert moved == 800 + 300 + 4600
    assert run(**jobs, **more | {"loops": 1}).completion_ns[4] == 5000
    even = {"kinds": (one, Kind(min_cores=2, max_cores=2))}
    assert run(**jobs | even, **more, costs=costs).completion_ns[4] == 5300  # it gains nothing: tried once


@pytest.mark.soak(takes_s=10)
def test_opportunistic_jobs_shrink_for_guaranteed_ones(run):
    memory = Phase(demand=(0.0, 0.0, 0.8, 0.0))
    kinds = (
        Kind(guaranteed=False, memory_floor=0.25, phases=(memory,)),
        Kind(guaranteed=True, phases=(memory,)),
    )
    more = {"cores": 2, "capacity": (1.0, 1.0, 0.5, 1.0)}
    ran = run([0, 100], [1e4, 1e4], kinds, kind=[0, 1], chosen="antman", **more)
    assert ran.jobs["preempted"].tolist() == [0, 0]
    assert ran.completion_ns[1] < 10_010
    stiff = (Kind(guaranteed=False, phases=(memory,)), kinds[1])
    ran = run([0, 100], [1e4, 1e4], stiff, kind=[0, 1], chosen="antman", **more)
    assert ran.jobs["preempted"].tolist() == [1, 0]
    assert ran.completion_ns[1] < 10_010


@pytest.mark.soak(takes_s=10)
def test_who_cannot_be_done_in_time_is_not_admitted(run):
    kind = Kind(max_cores=4)
    given = {"cores": 4, "chosen": "elasticflow", "settings": {"margin": 0.0}}
    ran = run([0, 0, 0], [4e5] * 3, (kind,), deadline_ns=[200_000] * 3, declared_ns=[4e5] * 3, **given)
    assert ran.jobs["promised"].tolist() == [t.PROMISED, t.PROMISED, t.REFUSED]
    assert (ran.completion_ns[:2] <= 200_000).all()
    # Nobody else wants the cores: it is done long before.
    ran = run([0], [4e5], (kind,), deadline_ns=[400_000], declared_ns=[4e5], **given)
    assert ran.completion_ns[0] == pytest.approx(100_000, abs=10)


@pytest.mark.soak(takes_s=10)
def test_nobody_starves_for_a_resource_of_which_others_ask_too_much(run):
    hungry, modest = (Kind(phases=(Phase(demand=(d, 0.0, 0.0, 0.0)),)) for d in (10.0, 0.5))
    more = {"cores": 2, "capacity": (1.0, 1.0, 1.0, 1.0)}
    fifo = run([0, 0], [1e5, 1e5], (hungry, modest), kind=[0, 1], **more)
    assert fifo.completion_ns[1] > 110_000  # all share what is there by what they ask for
    tuned = run([0, 0], [1e5, 1e5], (hungry, modest), kind=[0, 1], chosen="synergy", **more)
    assert tuned.completion_ns[1] == 100_000
    held = run([0, 0], [1e5, 1e5], (hungry, modest), kind=[0, 1], chosen="synergy", settings={"tune": 0}, **more)
    assert tuned.completion_ns[0] < 0.75 * held.completion_ns[0]  # it has what the other does not need


@pytest.mark.soak(takes_s=10)
def test_cores_go_where_they_gain_most(run):
    scales, not_ = Kind(max_cores=8), Kind(max_cores=8, serial=0.9)
    for name in ("optimus", "pollux"):
        more = {"cores": 8, "chosen": name, "declared_ns": [8e5, 8e5]}
        ran = run([0, 0], [8e5, 8e5], (scales, not_), kind=[0, 1], **more)
        assert ran.completion_ns[0] < 8e5 / 5


@pytest.mark.soak(takes_s=10)
def test_a_batch_is_chosen_for_its_goodput(run):
    kind = Kind(serial=0.5, max_batch=32.0, noise=20.0)
    alone = run([0], [1e6], (kind,)).completion_ns[0]
    assert run([0], [1e6], (kind,), chosen="pollux").completion_ns[0] < 0.8 * alone


@pytest.mark.soak(takes_s=10)
def test_estimated_demand_lets_jobs_share_a_core(run):
    kind = Kind(phases=(Phase(use=0.4),))
    at_once = {"chosen": "liquid", "settings": {"batch_us": 0.0}}
    ran = run([0, 2000, 2000], [1000.0] * 3, (kind,), seats=2, **at_once)
    assert ran.completion_ns.tolist() == [1000, 1000, 1000]
    whole = Kind()
    ran = run([0, 2000, 2000], [1000.0] * 3, (whole,), seats=2, **at_once)
    assert ran.completion_ns.tolist() == [1000, 1000, 2000]
    # A gang that does not fit held up all that came after it.
    kinds = (whole, Kind(min_cores=2, max_cores=2))
    jobs = ([0, 100, 200], [1e6, 1000.0, 1000.0], kinds)
    held = run(*jobs, kind=[0, 1, 0], cores=2, **at_once)
    passed = run(*jobs, kind=[0, 1, 0], cores=2, chosen="liquid", settings={"batch_us": 10.0})
    assert held.completion_ns[2] > 1e6
    assert passed.completion_ns[2] < 30_000  # two batches, and its own microsecond


@pytest.mark.soak(takes_s=5)
def test_a_gang_is_counted_for_on_each_seat(run):
    """Of two cores one is in use, and the other has two seats, but room for one of the gang only."""
    half = (Phase(use=0.6),)
    kinds = (Kind(phases=half), Kind(min_cores=2, max_cores=2, phases=half))
    at, kind = [0, 2000, 4000, 4100], [0, 1, 0, 1]
    ran = run(at, [1000.0] * 4, kinds, kind=kind, cores=2, seats=2, chosen="liquid")
    assert ran.refused == 0
    assert ran.over.all()


@pytest.mark.soak(takes_s=5)
def test_what_a_start_costs_is_part_of_a_promise(run):
    """100 ns of work by 105 ns, and a switch costs 10: it is turned away."""
    given = {"chosen": "elasticflow", "settings": {"margin": 0.0}, "declared_ns": [100.0], "deadline_ns": [105]}
    assert run([0], [100.0], **given).over.all()
    assert not run([0], [100.0], costs=world.Costs(switch_ns=10), **given).over.any()


@pytest.mark.soak(takes_s=10)
def test_a_job_waits_for_a_fast_core_if_it_ends_sooner_there(run):
    given = {"cores": 2, "speeds": (1.0, 0.1), "chosen": "hare", "settings": {"quantum_us": 0.0}}
    ran = run([0, 10], [100.0, 100.0], declared_ns=[100.0, 100.0], **given)
    assert ran.completion_ns.tolist() == [100, 190]
    ran = run([0, 0, 0], [500.0] * 3, weight=[1.0, 1.0, 9.0], declared_ns=[500.0] * 3, **given)
    assert ran.completion_ns.tolist() == [500, 1500, 1000]  # of those that wait the heaviest first
    ran = run([0, 0], [10.0, 500.0], declared_ns=[10.0, 500.0], **given)
    assert ran.completion_ns.tolist() == [10, 510]
    even = {"cores": 2, "chosen": "hare", "settings": {"quantum_us": 0.1}}
    ran = run([0, 0], [50.0, 1000.0], declared_ns=[50.0, 1000.0], **even)
    assert ran.completion_ns.tolist() == [50, 1000]  # it once had the core beside its own, too
    assert ran.refused == 0


@pytest.mark.soak(takes_s=10)
def test_parts_go_by_speed(run):
    gang = Kind(min_cores=2, max_cores=2)
    even, by_speed = (
        run([0], [3e5], (gang,), cores=2, speeds=(1.0, 0.5), chosen="whale", settings={"even": e}).completion_ns[0]
        for e in (1, 0)
    )
    assert even == pytest.approx(3e5, abs=2)
    assert by_speed == pytest.approx(2e5, abs=2)


@pytest.mark.soak(takes_s=10)
def test_recurring_tasks_find_what_costs_least(run):
    """One core more saves little time here, so for core time alone one core is best, for time alone four."""
    kind = Kind(max_cores=4, serial=0.5)
    at = np.arange(150) * 2_000_000
    cores = {}
    for energy in (0.0, 1.0):
        ran = run(at, [1e6] * 150, (kind,), cores=4, chosen="zeus", settings={"energy": energy})
        spent = (ran.jobs["attained_ns"] / ran.completion_ns)[75:]
        cores[energy] = float(np.median(spent))
    assert cores[1.0] == pytest.approx(1, abs=0.01)
    assert cores[0.0] == pytest.approx(4, abs=0.01)


@pytest.mark.soak(takes_s=10)
def test_stages_that_wait_anyway_are_paced(run):
    pipe = Kind(min_cores=2, max_cores=2, stages=(0.75, 0.25))
    fast = run([0], [1e6], (pipe,), cores=2)
    paced = run([0], [1e6], (pipe,), cores=2, chosen="envpipe", settings={"margin": 0.0})
    assert [paced.completion_ns[0], fast.completion_ns[0]] == pytest.approx([750_000, 750_000], abs=2)
    assert paced.series[:, 1].sum() == pytest.approx(fast.series[:, 1].sum() * (1 + 1 / 3) / 2, rel=1e-3)


@pytest.mark.parametrize("speeds", [(1.0,), (1.0, 0.6, 1.5)])
def test_pacing_moves_no_critical_path_and_holds_no_more(run, speeds):
    """The slowest stage is the same one as before, at full pace; cores, and the memory of a stage with them, are held
    for no longer."""
    for seed in range(20):
        parts = np.random.default_rng(seed).uniform(0.3, 1.0, 4)
        pipe = Kind(min_cores=4, max_cores=4, stages=tuple(float(p) for p in parts / parts.sum()))
        chosen = policy.load("envpipe")
        load = loads.Load((pipe,), loads.jobs([0], [1e7]))
        state, tables, keep = world.World(load, world.Machine(4, speeds=speeds)).prepared(chosen)
        engine.run(1 << 60, 1000, np.uint64(chosen.address), tables, state)
        cores = state.cores
        before = cores["speed"] / np.array(pipe.stages)[cores["stage"]]
        after = before * cores["pace"]
        assert before.argmin() == after.argmin(), f"seed {seed}"
        assert after.min() == before.min(), f"seed {seed}"
        assert (cores["pace"] < 1.0).sum() >= 2, f"seed {seed}"
        del keep
        held = [
            run([0], [1e7], (pipe,), cores=4, speeds=speeds, chosen=p).jobs["attained_ns"][0]
            for p in ("envpipe", "fifo")
        ]
        assert held[0] == pytest.approx(held[1], rel=1e-6)


def test_who_shares_what_is_left_and_who_goes_first(run):
    """Baselines once left cores idle beside jobs that could use them."""
    kind, work = Kind(max_cores=4), [4e5, 4e5]
    assert run([0, 0], work, (kind,), cores=4, chosen="fair").completion_ns.tolist() == [4e5, 4e5]
    even = run([0, 0], work, (kind,), cores=4, chosen="fair", settings={"grow": 1})
    assert even.completion_ns.tolist() == [2e5, 2e5]
    due = {"deadline_ns": [900_000, 100_000]}
    first = run([0, 0], work, (kind,), cores=4, chosen="edf", settings={"grow": 2}, **due)
    assert first.completion_ns.tolist() == [200_000, 100_000]
    left = run([0, 0], work, (kind,), cores=4, chosen="edf", settings={"grow": 1}, **due)
    assert left.completion_ns[1] == pytest.approx(4e5 / 3, abs=2)


def test_a_fixed_batch_is_a_static_setting(run):
    kind = Kind(max_batch=16.0, noise=50.0, serial=0.5)
    one = run([0], [1e6], (kind,), chosen="static", settings={"batch": 0.0}).completion_ns[0]
    assert run([0], [1e6], (kind,), chosen="static", settings={"batch": 1.0}).completion_ns[0] < 0.9 * one
    assert run([0], [1e6], (kind,), chosen="optimus", settings={"batch": 1.0}).completion_ns[0] < 0.9 * one
    served = Kind(batch_fixed_ns=100, batch_item_ns=10)
    ran = run([0, 1, 2, 3], [110.0] * 4, (served,), chosen="fifo", settings={"batch": 8})
    assert ran.completion_ns.tolist() == [110, 110 + 130 - 1, 110 + 130 - 2, 110 + 130 - 3]


def test_arms_beyond_a_rise_are_not_tried(run):
    """Noise of 0.5: the least batch is best, and the largest takes 20 times as long. It was tried with each number of
    cores."""
    kind = Kind(max_cores=4, serial=0.1, max_batch=32.0, noise=0.5)
    at = np.arange(40) * 30_000_000
    took = run(at, [1e6] * 40, (kind,), cores=4, chosen="zeus").completion_ns
    assert took.max() < 4e6
