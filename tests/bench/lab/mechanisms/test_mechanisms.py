"""What policies share, on numbers small enough to compute by hand."""

import numpy as np
import pytest

from corelane.bench.lab.mechanisms import attained, bandit, curve, gain, packing, shares, uneven


def test_levels_of_attained_service():
    assert [attained.level(x, 100.0, 10.0, 3) for x in (0, 99, 100, 999, 1000, 1e9)] == [0, 0, 1, 1, 2, 2]


def test_the_gittins_index_of_short_and_long_jobs():
    memory = np.zeros(attained.BUCKETS)
    memory[attained.bucket(10_000.0)] = 90
    memory[attained.bucket(10_000_000.0)] = 10
    fresh, past = attained.gittins(memory, 0, 0.0), attained.gittins(memory, 0, 50_000.0)
    nearly = attained.gittins(memory, 0, 8_000_000.0)
    assert fresh > past  # who has outlived the short ones will be long
    assert nearly > past  # and the nearer the end, the likelier
    assert attained.gittins(memory, 0, 1e12) == 0.0


def test_buckets_go_up_to_their_upper_ends():
    for ns in (1.0, 1000.0, 1500.0, 123_456.0, 9e8):
        i = attained.bucket(ns)
        assert ns <= attained.upper(i) * (1 + 1e-9) or i == attained.BUCKETS - 1
        assert i == 0 or ns > attained.upper(i - 1) * (1 - 1e-9)


def test_the_best_batch_is_the_best_of_all():
    for k, serial, sync, noise in ((1, 0.3, 0.0, 10.0), (4, 0.1, 0.02, 30.0), (8, 0.02, 0.0, 2.0)):
        best = gain.best_batch(k, serial, sync, noise, 64.0)
        tried = max(np.linspace(1, 64, 2000), key=lambda b: gain.goodput(k, b, serial, sync, noise))
        assert best == pytest.approx(tried, abs=0.1)
    assert gain.best_batch(4, 0.0, 0.0, 0.0, 64.0) == 1.0


def test_marginal_gain_stops_where_nothing_is_gained():
    memory = np.zeros(2 * gain.ROW)
    memory[:8] = (10.0, 0.0, 0.1, 1, 8, 0, 1, 0)  # time 10 (1 / k + (k - 1) / 10): least with 3
    memory[8:] = (10.0, 1.0, 0.0, 1, 8, 0, 1, 0)  # all serial
    assert gain.allocate(memory, 0, 2, 10) == 6
    assert memory[gain.OUT] == 3
    assert memory[gain.ROW + gain.OUT] == 1


def filled(ends, rows, cores):
    """How many of the rows are late, the rows with their shares, and the table: a line of spans for each."""
    n, spans = len(rows), len(ends)
    memory = np.zeros(2 * spans + n * (shares.ROW + spans))
    memory[:spans] = ends
    table = 2 * spans + n * shares.ROW
    memory[2 * spans : table] = np.ravel(rows)
    late = shares.fill(memory, 2 * spans, n, 0, spans, spans, float(cores), table, spans)
    return late, memory[2 * spans : table].reshape(n, shares.ROW), memory[table:].reshape(n, spans)


def still_reaches(row, now, ends, line):
    memory = np.concatenate([row, ends, line])
    return shares.reaches(memory, 0, now, shares.ROW, len(ends), shares.ROW + len(ends))


def test_shares_hold_for_all_or_say_who_is_late():
    ends, two = [10.0, 20.0], (20.0, 0.0, 0.0, 1, 4, 1, 0)  # needs 2 cores until 10
    four = (50.0, 0.0, 0.0, 1, 4, 2, 0)  # and this one all 4 after that
    late, rows, table = filled(ends, [two, four], 4)
    assert late == 0
    assert rows[1, shares.SHARE] == 4
    assert table.tolist() == [[2, 0], [2, 4]]
    assert filled(ends, [two, (61.0, *four[1:])], 4)[0] == 1


def test_shares_that_were_promised_are_found_again():
    """Whatever of a plan has been done, the rest of it can be done with the shares that it had; and by its table, even
    where more was done than it says."""
    rng = np.random.default_rng(3)
    kept = 0
    for _ in range(300):
        n, spans = int(rng.integers(1, 6)), int(rng.integers(1, 5))
        ends = np.cumsum(rng.uniform(5, 20, spans))
        due = np.sort(rng.integers(1, spans + 1, n))
        given = [(rng.uniform(0.1, 2) * ends[due[i] - 1], rng.uniform(0, 0.3), 0.0, 1, 8, due[i], 0) for i in range(n)]
        late, rows, table = filled(ends, given, 8)
        if late:
            continue
        kept += 1
        passed = rng.uniform(0, ends[0])
        speeds = [
            gain.goodput(max(k, 1), 1.0, r[shares.SERIAL], 0.0, 0.0) for r, k in zip(rows, table[:, 0], strict=True)
        ]
        rows[:, shares.WORK] -= [passed * s if k else 0.0 for s, k in zip(speeds, table[:, 0], strict=True)]
        rows[:, shares.WORK] = np.maximum(rows[:, shares.WORK], 0.0)
        assert filled(ends - passed, rows, 8)[0] == 0
        rows[:, shares.WORK] *= rng.uniform(0, 1, n)
        assert all(still_reaches(row, passed, ends, line) for row, line in zip(rows, table, strict=True))
    assert kept > 50


def test_a_table_holds_where_filling_in_anew_finds_no_way():
    """The first one ends early. Then the second one, which needs both cores, is entered for the time until its
    deadline, and the third one would have to wait for that."""
    first, second, third = (10.0, 0.0, 0.0, 1, 1, 1, 0), (20.0, 0.0, 0.0, 2, 2, 2, 0), (10.0, 0.0, 0.0, 1, 1, 3, 0)
    late, rows, table = filled([10.0, 20.0, 21.0], [first, second, third], 2)
    assert late == 0
    assert table.tolist() == [[1, 0, 0], [0, 2, 0], [1, 0, 0]]
    third_later = (9.0, *third[1:5], 2, 1)
    assert filled([19.0, 20.0], [(*second[:5], 1, 2), third_later], 2)[0] == 1
    assert still_reaches(rows[1], 1.0, [10.0, 20.0, 21.0], table[1])
    assert still_reaches(np.array(third_later), 1.0, [10.0, 20.0, 21.0], table[2])
    assert not still_reaches(np.array((11.5, *third_later[1:])), 1.0, [10.0, 20.0, 21.0], table[2])


def test_nobody_gets_less_than_its_proportional_share():
    memory = np.array([0.2, 1.0, 3.0, 1.0, 1.5, 1.0, 0.5, 1.0])
    packing.water(memory, 0, 4, 4.0, 1.0)
    assert memory[::2].tolist() == pytest.approx([0.2, 1.8, 1.5, 0.5])


def test_sessions_that_go_together_are_packed_onto_one_core():
    memory = np.zeros(2 * packing.ROW)
    memory[:5] = memory[8:13] = (0.01, 10.0, 1.0, 400.0, 64)
    assert packing.squishy(memory, 0, 2) == 1
    memory[packing.LIMIT] = memory[8 + packing.LIMIT] = 14.0  # so tight that each needs the core whenever it is asked
    assert packing.squishy(memory, 0, 2) == 2


def test_parts_by_speed_under_caps():
    memory = np.array([1.0, 1.0, 0, 0.5, 1.0, 0, 0.5, 1.0, 0])
    uneven.split(memory, 0, 3)
    assert memory[2::3].tolist() == pytest.approx([0.5, 0.25, 0.25])
    memory[1] = 0.2
    uneven.split(memory, 0, 3)
    assert memory[2::3].tolist() == pytest.approx([0.2, 0.4, 0.4])
    memory[1::3] = 0.1
    uneven.split(memory, 0, 3)
    assert memory[2::3].sum() == pytest.approx(1.0)


def test_an_arm_is_learned_by_mean_and_spread():
    memory = np.zeros(bandit.WORDS)
    for cost in (2.0, 4.0, 9.0):
        bandit.learn(memory, 0, 0, cost)
    assert memory.tolist() == pytest.approx([3, 5.0, 26.0])


def test_the_convergence_curve_tells_what_is_left():
    memory = np.zeros(curve.WORDS)
    for p in np.linspace(1, 40, 30):
        curve.note_loss(memory, 0, p, 0.2 + 1.0 / (1.0 + p / 10.0), 7)
    last = memory[curve.FIRST + 2 * int(memory[curve.POINTS]) - 2]
    assert last + curve.left_by_loss(memory, 0, 0.3) == pytest.approx(90.0, rel=0.15)
    curve.note_loss(memory, 0, 1.0, 1.0, 8)  # another job has the slot
    assert curve.left_by_loss(memory, 0, 0.3) == 0.0
