"""Shares by which deadlines are kept: what is promised can be done, and little that can be is refused (filling.py)."""

from __future__ import annotations

import random

import pytest

from corelane.iokernel.control.filling import Need, fill, fits, soonest

CASES = 400


def drawn(rng: random.Random, narrow: bool) -> tuple[list[Need], float, dict[str, float]]:
    """Some needs that about fill the cores, the cores, and the limits of two groups. narrow: each uses few cores."""
    cores = float(rng.randint(1, 4))
    limits = {"a": rng.uniform(0.5, cores), "b": rng.uniform(0.5, cores)} if narrow else {"a": cores}
    needs = []
    for _ in range(rng.randint(1, 6)):
        left_s = rng.choice([5.0, 10.0, 20.0, rng.uniform(1, 30)])
        most = rng.choice([0.5, 1.0, 2.0]) if narrow else cores
        core_s = rng.uniform(0.05, 0.6) * left_s * min(most, cores)
        needs.append(Need(core_s, left_s, most, rng.choice(sorted(limits))))
    return needs, cores, limits


def is_possible(needs: list[Need], cores: float) -> bool:
    """Whether all can be done in time where each may use all cores: what is due by a deadline fits before it."""
    return all(sum(n.core_s for n in needs if n.left_s <= by) <= cores * by + 1e-9 for by in {n.left_s for n in needs})


def by_linear_program(needs: list[Need], cores: float, limits: dict[str, float]) -> bool:
    """The same with limits, by any shares that change at the deadlines: a linear program."""
    from scipy.optimize import linprog

    ends = sorted({n.left_s for n in needs})
    lengths = [e - b for b, e in zip([0.0, *ends], ends, strict=False)]
    at = [(i, s) for i in range(len(needs)) for s in range(len(ends))]
    upper: list[list[float]] = []
    most: list[float] = []
    for s, length in enumerate(lengths):
        for group, limit in [(None, cores), *limits.items()]:
            upper.append([float(t == s and group in (None, needs[i].group)) for i, t in at])
            most.append(limit * length)
    equal = [[float(j == i) for j, _ in at] for i in range(len(needs))]
    bounds = [(0, needs[i].most * lengths[s] if ends[s] <= needs[i].left_s else 0) for i, s in at]
    found = linprog([0.0] * len(at), upper, most, equal, [n.core_s * 0.999999 for n in needs], bounds, method="highs")
    return bool(found.status == 0)


@pytest.mark.parametrize("seed", range(4))
def test_where_each_may_use_all_cores_it_is_exact(seed: int) -> None:
    rng = random.Random(seed)
    possible = 0
    for _ in range(CASES):
        needs, cores, limits = drawn(rng, narrow=False)
        expected = is_possible(needs, cores)
        assert all(share.kept for share in fill(needs, cores, limits)) == expected, (needs, cores)
        possible += expected
    assert CASES // 10 < possible < CASES * 9 // 10  # both occur


def test_with_limits_what_is_promised_is_possible_and_little_is_refused() -> None:
    pytest.importorskip("scipy", reason="no scipy for the linear program: pip install scipy")
    rng = random.Random(7)
    refused = kept = 0
    for _ in range(CASES // 8):
        needs, cores, limits = drawn(rng, narrow=True)
        possible = by_linear_program(needs, cores, limits)
        if all(share.kept for share in fill(needs, cores, limits)):
            assert possible, (needs, cores, limits)
            kept += 1
        else:
            refused += possible
    print(f"{kept} kept, {refused} refused that shares which change could keep")
    assert kept > 10
    assert refused <= kept // 20  # an even share is not the best one; it is nearly


@pytest.mark.parametrize("seed", range(3))
def test_shares_stay_within_cores_limits_and_what_each_can_use(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(CASES):
        needs, cores, limits = drawn(rng, narrow=True)
        shares = fill(needs, cores, limits)
        assert sum(share.cores for share in shares) <= cores + 1e-9
        for group, limit in limits.items():
            assert sum(s.cores for s, n in zip(shares, needs, strict=True) if n.group == group) <= limit + 1e-9
        assert all(0 <= s.cores <= n.most + 1e-9 for s, n in zip(shares, needs, strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_followed_in_time_all_that_is_promised_is_done(seed: int) -> None:
    """The shares are worked out anew each tenth of a second, from what is left: as the control thread does."""
    rng = random.Random(seed)
    for _ in range(12):
        needs, cores, limits = drawn(rng, narrow=True)
        if not all(share.kept for share in fill(needs, cores, limits)):
            continue
        left = {i: need.core_s for i, need in enumerate(needs)}
        step, now = 0.1, 0.0
        while left:
            rows = [Need(left[i], needs[i].left_s - now, needs[i].most, needs[i].group) for i in left]
            for i, share in zip(list(left), fill(rows, cores, limits), strict=True):
                left[i] -= share.cores * step
                if left[i] <= 1e-9:
                    del left[i]
            now += step
            assert not any(needs[i].left_s < now - 2 * step for i in left), (needs, now)


def test_one_that_fits_takes_nothing_from_those_before_it() -> None:
    old = [Need(4.0, 10.0, 1.0, "a")]
    limits = {"a": 1.0}
    assert fits(Need(5.9, 10.0, 1.0, "a"), old, 1.0, limits)
    assert not fits(Need(6.1, 10.0, 1.0, "a"), old, 1.0, limits)
    assert not fits(Need(3.0, 5.0, 0.5, "a"), old, 1.0, limits)  # it can use half a core only
    late = [Need(20.0, 10.0, 1.0, "a")]  # one that cannot be kept any more has what it can until its deadline
    assert not fits(Need(1.0, 10.0, 1.0, "a"), late, 1.0, limits)
    assert fits(Need(1.0, 11.0, 1.0, "a"), late, 1.0, limits)


def test_the_soonest_deadline_that_can_be_kept() -> None:
    limits = {"a": 1.0, "b": 0.25}
    assert soonest(Need(6.0, 1.0, 1.0, "a"), [], 1.0, limits) == pytest.approx(6.0, rel=2e-3)
    other = Need(4.0, 10.0, 1.0, "a")  # which can wait
    assert soonest(Need(6.0, 1.0, 1.0, "a"), [other], 1.0, limits) == pytest.approx(6.0, rel=2e-3)
    other = Need(4.0, 5.0, 1.0, "a")  # which cannot
    assert soonest(Need(6.0, 1.0, 1.0, "a"), [other], 1.0, limits) == pytest.approx(10.0, rel=2e-3)
    assert soonest(Need(6.0, 1.0, 1.0, "b"), [], 1.0, limits) == pytest.approx(24.0, rel=2e-3)
    assert soonest(Need(6.0, 1.0, 1.0, "a"), [], 0.0, limits) is None
    assert soonest(Need(6.0, 8.0, 1.0, "a"), [], 1.0, limits) == pytest.approx(8.0, rel=2e-3)  # its own does
