"""Loads from seeds: the shapes that they are said to have."""

import numpy as np
import pytest

from corelane.bench.lab import generators, loads
from corelane.bench.lab.generators import TARGETS, make
from corelane.runtime.errors import ConfigError

JOBS = 20_000


def lasts_us(load):
    least = np.array([k.min_cores for k in load.kinds])[load.jobs["kind"]]
    return load.jobs["work_ns"] / least / 1e3


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_quantiles_of_the_cluster_are_its_targets(seed):
    load = make("cluster", {"jobs": JOBS}, 64, seed)
    p50, p90, p99 = np.percentile(lasts_us(load), (50, 90, 99))
    assert p50 == pytest.approx(TARGETS["p50_us"], rel=0.15)
    assert p90 / p50 == pytest.approx(TARGETS["p90_over_p50"], rel=0.25)
    assert p99 / p50 == pytest.approx(TARGETS["p99_over_p50"], rel=0.5)


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_parts_of_the_cluster_are_its_targets(seed):
    load = make("cluster", {"jobs": JOBS}, 64, seed)
    kind = load.jobs["kind"]
    recurs = np.array([k.recurs for k in load.kinds])[kind]
    assert recurs.mean() == pytest.approx(TARGETS["recurring"], abs=0.02)
    counts = np.sort(np.bincount(kind[recurs]))[::-1]
    assert counts[: round(0.05 * sum(k.recurs for k in load.kinds))].sum() / counts.sum() == pytest.approx(
        TARGETS["busiest"], abs=0.05
    )
    least = np.array([k.min_cores for k in load.kinds])[kind]
    use = np.array([k.phases[0].use for k in load.kinds])[kind]
    assert (use < 1).mean() == pytest.approx(TARGETS["fraction"], abs=0.06)
    assert ((use == 1) & (least == 1)).mean() == pytest.approx(TARGETS["one"], abs=0.06)
    assert (least >= 8).mean() == pytest.approx(TARGETS["gang"], abs=0.04)


@pytest.mark.parametrize("name", generators.GENERATORS)
def test_the_load_is_what_was_asked_for(name):
    asked = make(name, {"jobs": JOBS, "load": 0.6}, 16, seed=5)
    use = np.array([k.phases[0].use for k in asked.kinds])[asked.jobs["kind"]]
    power = 16 * (np.mean(generators.SPEEDS) if name == "cluster" else 1.0)
    offered = (asked.jobs["work_ns"] * use).sum() / (power * asked.jobs["at_ns"][-1])
    assert offered == pytest.approx(0.6, rel=0.25 if name == "bimodal" else 0.1)  # of its long ones there are 100


def test_seeds_decide():
    one, same, other = (make("cluster", {"jobs": 500}, 8, seed) for seed in (1, 1, 2))
    assert (one.jobs == same.jobs).all()
    assert one.kinds == same.kinds
    assert (one.jobs["work_ns"] != other.jobs["work_ns"]).any()
    assert one.said == {"generator": "cluster", "settings": one.said["settings"], "cores": 8, "seed": 1}


def test_the_rate_of_the_cluster_goes_up_and_down():
    at = make("cluster", {"jobs": JOBS, "swing": 0.8}, 64, 1).jobs["at_ns"]
    counts, _ = np.histogram(at, bins=8)
    assert counts[::2].mean() > 2 * counts[1::2].mean()  # half-days


def test_gangs_fit_few_cores():
    load = make("cluster", {"jobs": 200}, 2, 1)
    assert max(k.max_cores for k in load.kinds) == 1


def test_words_that_are_wrong():
    with pytest.raises(ConfigError, match="no generator of that name"):
        make("clusters", {}, 4, 1)
    with pytest.raises(ConfigError, match=r"no such setting.*it has jobs, load"):
        make("exponential", {"sigma": 1.0}, 4, 1)
    with pytest.raises(ConfigError, match="0 or more"):
        make("poisson", {"sigma": -1.0}, 4, 1)
    with pytest.raises(ConfigError, match="more than none"):
        make("poisson", {"jobs": 0}, 4, 1)


def test_a_file_gives_back_the_load(tmp_path):
    load = make("cluster", {"jobs": 300}, 8, 1)
    loads.write(tmp_path / "a.load", load)
    back = loads.read(tmp_path / "a.load")
    assert back.kinds == load.kinds
    assert (back.jobs == load.jobs).all()
    assert back.said == load.said
