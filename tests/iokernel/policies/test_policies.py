"""Every built-in policy on random tables: grants that the mechanism accepts, latency before batch, guarantees kept."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from cltest import soak
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corelane.iokernel._native import ffi, lib

random_tables = settings(max_examples=soak.examples(150, 5000))
any_tables = settings(max_examples=soak.examples(40, 5000))  # where it does not take a certain one to find a mistake
CHECKS = 10_000  # of where shares are looked at: 50 ms
NAMES = []
while (_name := lib.cl_policy_name(len(NAMES))) != ffi.NULL:
    NAMES.append(ffi.string(_name).decode())


def drawn_rows(seed: int) -> list[dict[str, int]]:
    """Of a random table. Drawn here: hypothesis takes longer over each number than a policy over the table."""
    rng = random.Random(seed)
    return [
        {
            "packet_delay_ns": rng.choice((0, 0, 1, 4_999, 5_000, 10_001, 10**9)),
            "thread_delay_ns": rng.choice((0, 7_000)),
            "attained_ns": rng.choice((0, rng.randrange(10**6), rng.randrange(10**12))),
            "cores": rng.randint(0, 8),
            "guaranteed": rng.randint(0, 4),
            "maximum": rng.randint(0, 16),
            "kind": rng.choice((lib.CL_POLICY_LATENCY, lib.CL_POLICY_BATCH)),
            "weight": rng.randint(0, 5),
            "more": rng.randint(0, 8),
        }
        for _ in range(rng.choice((1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 12, 16)))
    ]


tables = st.builds(drawn_rows, st.integers(0, 2**32 - 1))

IN_USE = {"packet_delay_ns": 0, "thread_delay_ns": 0, "cores": 0, "guaranteed": 1, "maximum": 1, "kind": 0, "weight": 1}


def table(rows: list[dict[str, int]], cores: int) -> tuple[Any, Any]:
    """The view and the applications as C sees them.

    "more" of a row: cores that it could use beyond those at work, all if it is left out; of a latency application at
    least one if anything waits, and none if not.
    """
    view = ffi.new("struct cl_policy_view *")
    view.now_ns, view.interval_ns, view.n_apps, view.n_cores = 10**9, 5000, len(rows), cores
    out = ffi.new("struct cl_policy_app[]", len(rows))
    for a, row in zip(out, rows, strict=True):
        for key, value in row.items():
            if key != "more":
                setattr(a, key, value)
        a.idle = row.get("idle", 0 if a.packet_delay_ns else a.cores // 2)
        more = row.get("more", a.maximum)
        if a.kind == lib.CL_POLICY_LATENCY:
            more = max(more, 1) if waits(a) else 0
        a.demand = row.get("demand", min(a.cores - a.idle + more, a.maximum))
    return view, out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.soak(short=True, takes_s=30)
@random_tables
@given(rows=tables, cores=st.integers(1, 16))
@example(rows=[IN_USE | {"kind": 1}, IN_USE | {"cores": 1}], cores=1)
def test_settled_grants_fit(name: str, rows: list[dict[str, int]], cores: int) -> None:
    view, out = table(rows, cores)
    lib.cl_policy_find(name.encode())(view, out)
    lib.cl_policy_settle(view, out)
    assert sum(a.grant for a in out) <= cores
    assert all(a.grant <= a.maximum for a in out)
    # Nobody goes without what it was guaranteed and can use while anybody has more than that; and where guarantees
    # exceed the cores, batch goes without first.
    if any(a.grant < due(a, cores) for a in out):
        assert all(a.grant <= min(a.guaranteed, a.maximum) for a in out)
    if any(a.grant < due(a, cores) for a in out if a.kind == lib.CL_POLICY_LATENCY):
        assert all(a.grant == 0 for a in out if a.kind == lib.CL_POLICY_BATCH)
    reserved = sum(min(a.guaranteed, a.maximum, cores) if name == "static" else due(a, cores) for a in out)
    # An idle core that `delay` leaves within the guarantee for a check more.
    idle = sum(min(a.guaranteed, a.cores) - due(a, cores) for a in out if min(a.guaranteed, a.cores) > due(a, cores))
    if reserved + idle <= cores:
        assert all(a.grant >= due(a, cores) for a in out)


def waits(a: Any) -> bool:
    return bool(max(a.packet_delay_ns, a.thread_delay_ns))


def due(a: Any, cores: int) -> int:
    """What an application is guaranteed and can use."""
    return int(min(a.guaranteed, a.maximum, a.demand, cores))


def congested(name: str, a: Any) -> bool:
    """Whether a policy owes a latency application a core more."""
    oldest = max(a.packet_delay_ns, a.thread_delay_ns)
    if name == "shenango":
        return oldest >= 5000 or (oldest > 0 and a.cores == 0)
    return bool(oldest)


@pytest.mark.parametrize("name", ["shenango", "delay", "fair", "attained"])
@pytest.mark.soak(short=True, takes_s=30)
@random_tables
@given(rows=tables, cores=st.integers(1, 16))
def test_no_core_is_left_over_that_somebody_could_use(name: str, rows: list[dict[str, int]], cores: int) -> None:
    view, out = table(rows, cores)
    lib.cl_policy_find(name.encode())(view, out)
    lib.cl_policy_settle(view, out)
    if sum(a.grant for a in out) < cores:
        assert all(a.grant == min(a.demand, cores) for a in out if a.kind == lib.CL_POLICY_BATCH)
        for a in out:
            if a.kind == lib.CL_POLICY_LATENCY and congested(name, a):
                assert a.grant >= min(a.cores + 1, a.demand, cores)


@pytest.mark.parametrize("name", ["shenango", "delay", "fair", "attained"])
@pytest.mark.soak(short=True, takes_s=30)
@random_tables
@given(rows=tables, cores=st.integers(1, 16))
def test_latency_comes_before_batch(name: str, rows: list[dict[str, int]], cores: int) -> None:
    """A congested latency application that goes without leaves batch with what was guaranteed."""
    view, out = table(rows, cores)
    lib.cl_policy_find(name.encode())(view, out)
    lib.cl_policy_settle(view, out)
    overdue = [a for a in out if a.kind == lib.CL_POLICY_LATENCY and a.packet_delay_ns > 10_000]
    if any(a.grant < min(a.cores + 1, a.demand) for a in overdue):
        assert all(a.grant <= min(a.guaranteed, a.maximum) for a in out if a.kind == lib.CL_POLICY_BATCH)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.soak(short=True, takes_s=30)
@any_tables
@given(rows=tables, cores=st.integers(1, 300))
def test_the_same_table_gets_the_same_grants(name: str, rows: list[dict[str, int]], cores: int) -> None:
    answers = []
    for _ in range(2):
        view, out = table(rows, cores)
        for _ in range(3):
            lib.cl_policy_find(name.encode())(view, out)
        answers.append([(a.grant, list(a.memory)) for a in out])
    assert answers[0] == answers[1]


def settled_one_by_one(rows: list[dict[str, int]], cores: int) -> list[int]:
    """What cl_policy_settle does, by its definition: a core at a time."""
    grants = []
    for row in rows:
        most = min(row["maximum"], cores)
        grants.append(max(min(row["grant"], most), min(row["guaranteed"], row["demand"], most)))
    while sum(grants) > cores:
        for step, kind in itertools.product(("unused", "burst", "guaranteed"), (1, 0)):
            over = {}
            for i, row in enumerate(rows):
                keeps = {"unused": max(row["guaranteed"], row["demand"]), "burst": row["guaranteed"], "guaranteed": 0}
                if row["kind"] == kind and grants[i] > keeps[step]:
                    over[i] = grants[i] - row["guaranteed"]
            if over:
                grants[max(over, key=lambda i: (over[i], -i))] -= 1
                break
    return grants


@pytest.mark.soak(short=True, takes_s=30)
@random_tables
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "grant": st.integers(0, 40),
                "guaranteed": st.integers(0, 12),
                "maximum": st.integers(0, 30),
                "demand": st.integers(0, 30),
                "kind": st.integers(0, 1),
            }
        ),
        min_size=1,
        max_size=16,
    ),
    cores=st.integers(1, 64),
)
def test_settling_cuts_as_if_core_by_core(rows: list[dict[str, int]], cores: int) -> None:
    view, out = table(rows, cores)
    changed = lib.cl_policy_settle(view, out)
    assert [a.grant for a in out] == settled_one_by_one(rows, cores)
    assert bool(changed) == ([a.grant for a in out] != [row["grant"] for row in rows])


def dealt_one_by_one(rows: list[dict[str, int]], cores: int, slice_ns: float, credit_ns: float) -> list[int]:
    """What `fair` gives batch applications at its first call, by its definition: a core at a time."""
    grants = [0] * len(rows)
    for i, row in enumerate(rows):
        grants[i] = min(row["maximum"], row["guaranteed"], cores - sum(grants))
    rest = [i for i, row in enumerate(rows) if row["maximum"] > grants[i]]
    if not rest:
        return grants
    per = [1.0 / row["weight"] for row in rows]
    lag = [row["attained_ns"] * p for row, p in zip(rows, per, strict=True)]
    total = weights = 0.0
    for i in rest:
        total, weights = total + lag[i] * rows[i]["weight"], weights + rows[i]["weight"]
    lag = [min(max(x - total / weights, -credit_ns), credit_ns) for x in lag]

    def key(i: int) -> tuple[float, int]:
        slack = slice_ns * per[i] if grants[i] < rows[i]["cores"] else 0
        return lag[i] + (grants[i] + 1) * (5000.0 * per[i]) - slack, i

    while sum(grants) < cores and (wanting := [i for i in rest if grants[i] < rows[i]["maximum"]]):
        grants[min(wanting, key=key)] += 1
    return grants


@pytest.mark.soak(short=True, takes_s=30)
@random_tables
@given(
    rows=st.lists(
        st.fixed_dictionaries(
            {
                "attained_ns": st.integers(0, 10**6),
                "cores": st.integers(0, 40),
                "guaranteed": st.integers(0, 4),
                "maximum": st.integers(0, 256),
                "kind": st.just(1),
                "weight": st.integers(1, 7),
            }
        ),
        min_size=1,
        max_size=20,
    ),
    cores=st.integers(1, 256),
)
def test_fair_deals_as_if_core_by_core(rows: list[dict[str, int]], cores: int) -> None:
    """However many cores: most of them are dealt at once, by bisection, and it must not show."""
    for row in rows:
        row["packet_delay_ns"] = 0
    view, out = table(rows, cores)
    lib.cl_policy_find(b"fair")(view, out)
    assert [a.grant for a in out] == dealt_one_by_one(rows, cores, 50_000.0, 1e7)


@pytest.mark.parametrize("name", ["fair", "delay", "static"])
@pytest.mark.parametrize(("weights", "cores"), [((1, 1), 1), ((3, 1), 1), ((1, 2, 4), 3), ((5, 1, 1), 4)])
def test_batch_shares_cores_by_weight_over_time(name: str, weights: tuple[int, ...], cores: int) -> None:
    """Core time in proportion to weight, and cores that do not change hands at every check."""
    view, out = table([{"kind": 1, "maximum": cores, "weight": w, "packet_delay_ns": 0} for w in weights], cores)
    moves, checks = 0, CHECKS
    for a in out:
        a.idle = 0
    for _ in range(checks):
        lib.cl_policy_find(name.encode())(view, out)
        for a in out:
            moves += max(a.grant - a.cores, 0)
            a.cores = a.grant
            a.attained_ns += a.grant * 5000
    total = sum(a.attained_ns for a in out)
    assert total == checks * cores * 5000
    for a, weight in zip(out, weights, strict=True):
        entitled = min(weight / sum(weights), 1.0)
        assert a.attained_ns / total == pytest.approx(entitled, rel=0.03)
    assert moves < checks * cores / 8


@pytest.mark.parametrize("name", ["fair", "delay", "shenango"])
def test_a_job_goes_on_where_a_latency_application_took_the_core(name: str) -> None:
    """For two checks in five: jobs share the rest evenly, and still have turns of a slice each."""
    row = {"maximum": 1, "weight": 1, "packet_delay_ns": 0}
    view, out = table([row, *[row | {"kind": lib.CL_POLICY_BATCH}] * 4], 1)
    latency, jobs, turns, last = out[0], out[1:5], 0, None
    for check in range(CHECKS):
        asks = check % 5 < 2
        latency.packet_delay_ns, latency.demand = (10**6, 1) if asks else (0, 0)
        latency.idle = 0 if asks else latency.cores
        lib.cl_policy_find(name.encode())(view, out)
        for a in out:
            a.cores = a.grant
            a.attained_ns += a.grant * 5000
        now = next((i for i, a in enumerate(jobs) if a.grant), None)
        turns += now is not None and now != last
        last = last if now is None else now
    total = sum(a.attained_ns for a in jobs)
    assert total == pytest.approx(CHECKS * 5000 * 3 / 5, rel=0.01)
    assert [a.attained_ns / total for a in jobs] == pytest.approx([1 / 4] * 4, rel=0.03)
    assert turns * 40_000 < total  # a slice of `fair` is 50 us


@pytest.mark.parametrize("name", ["fair", "delay", "shenango", "attained"])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(("weights", "cores"), [((1, 1), 1), ((3, 1), 1), ((1, 1, 1), 2), ((1, 2, 4), 3)])
def test_latency_applications_that_always_wait_share_by_weight(
    name: str, first: int, weights: tuple[int, ...], cores: int
) -> None:
    """Whoever had the cores first; in turns, of at least four checks each on one core."""
    rows = [{"maximum": cores, "weight": w, "packet_delay_ns": 10**6} for w in weights]
    batch = {"kind": 1, "maximum": cores, "packet_delay_ns": 0, "weight": 1}
    view, out = table([*rows, batch], cores)
    out[first].cores = cores
    moves, checks = 0, CHECKS
    for _ in range(checks):
        lib.cl_policy_find(name.encode())(view, out)
        lib.cl_policy_settle(view, out)
        for a in out:
            moves += max(a.grant - a.cores, 0)
            a.cores = a.grant
            a.attained_ns += a.grant * 5000
    assert out[len(weights)].attained_ns == 0
    assert sum(a.attained_ns for a in out) == checks * cores * 5000
    for a, weight in zip(out, weights, strict=False):
        entitled = weight / sum(weights)
        assert a.attained_ns == pytest.approx(entitled * checks * cores * 5000, rel=0.03)
    assert moves <= checks * cores / (4 if cores == 1 else 2)


def test_fair_owes_a_newcomer_no_more_than_its_credit() -> None:
    view, out = table([{"kind": 1, "maximum": 1, "weight": 1, "packet_delay_ns": 0} for _ in range(2)], 1)
    out[0].attained_ns = 3600 * 10**9
    out[0].idle = 0
    held = 0
    for _ in range(10_000):  # 50 ms
        lib.cl_policy_find(b"fair")(view, out)
        for a in out:
            a.cores = a.grant
            a.attained_ns += a.grant * 5000
        held += out[0].grant
    # 20 ms ahead in all (credit on either side), then half and half.
    assert held * 5000 == pytest.approx(15e6, rel=0.05)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.soak(short=True, takes_s=30)
@any_tables
@given(rows=tables, cores=st.integers(1, 16))
def test_nothing_else_is_written(name: str, rows: list[dict[str, int]], cores: int) -> None:
    view, out = table(rows, cores)
    fields = [name for name, _ in ffi.typeof("struct cl_policy_app").fields if name not in ("grant", "memory")]
    before = [[getattr(a, field) for field in fields] for a in out]
    lib.cl_policy_find(name.encode())(view, out)
    assert [[getattr(a, field) for field in fields] for a in out] == before


@pytest.mark.soak(short=True, takes_s=30)
@random_tables
@given(grants=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=16), cores=st.integers(1, 256))
def test_nonsense_is_cut(grants: list[int], cores: int) -> None:
    view, out = table([{"maximum": 300, "weight": 1} for _ in grants], cores)
    for a, grant in zip(out, grants, strict=True):
        a.grant = grant
    changed = lib.cl_policy_settle(view, out)
    assert sum(a.grant for a in out) <= cores
    assert changed or [a.grant for a in out] == grants


def grants_of(
    name: str,
    rows: list[dict[str, int]],
    cores: int = 8,
    params: tuple[int, ...] = (),
    calls: int = 1,
    **told: int,
) -> list[int]:
    """What a policy grants, at the last of so many calls. told: words of the view."""
    view, out = table([{"maximum": 8, "weight": 1} | row for row in rows], cores)
    for word, value in told.items():
        setattr(view, word, value)
    for i, value in enumerate(params):
        view.params[i] = value
    for _ in range(calls):
        lib.cl_policy_find(name.encode())(view, out)
    return [a.grant for a in out]


def test_shenango_adds_a_core_for_what_outlived_a_check() -> None:
    assert grants_of("shenango", [{"cores": 2, "packet_delay_ns": 4_999}]) == [2]
    assert grants_of("shenango", [{"cores": 2, "packet_delay_ns": 5_000}]) == [3]
    assert grants_of("shenango", [{"cores": 0, "packet_delay_ns": 1}]) == [1]
    assert grants_of("shenango", [{"cores": 4}]) == [2]  # two are idle


def test_delay_has_hysteresis() -> None:
    batch = {"kind": 1}  # which has every core that nobody else needs
    assert grants_of("delay", [{"cores": 2, "packet_delay_ns": 9_999}, batch]) == [2, 6]
    assert grants_of("delay", [{"cores": 2, "packet_delay_ns": 10_001}, batch]) == [3, 5]
    assert grants_of("delay", [{"cores": 2, "packet_delay_ns": 10_001}, batch], params=(50_000,)) == [2, 6]
    assert grants_of("delay", [{"cores": 4}]) == [2]  # two are idle
    assert grants_of("delay", [{"cores": 4}], params=(0, 3), calls=2) == [4]  # calm, but not for long enough
    assert grants_of("delay", [{"cores": 4}], params=(0, 3), calls=3) == [2]
    assert grants_of("delay", [{"cores": 4, "packet_delay_ns": 5_001, "idle": 1}, batch]) == [4, 4]  # neither


def test_delay_accounts_for_the_move() -> None:
    """Without a core: at the last check (the next is 5 us later) from which a core that moves so is there in time."""
    for move_ns, last_ns in ((0, 5_000), (2_000, 3_000)):
        early, late = ({"cores": 0, "packet_delay_ns": last_ns + more} for more in (0, 1))
        assert grants_of("delay", [early, {"kind": 1}], move_ns=move_ns) == [0, 8]
        assert grants_of("delay", [late, {"kind": 1}], move_ns=move_ns) == [1, 7]
    assert grants_of("delay", [{"cores": 0, "packet_delay_ns": 1}, {"kind": 1}], move_ns=60_000) == [1, 7]
    assert grants_of("delay", [{"cores": 2, "packet_delay_ns": 9_999}, {"kind": 1}], move_ns=2_000) == [2, 6]


def test_delay_accounts_for_the_first_answer() -> None:
    """If it takes longer than the move; up to a quarter of the target more than that."""
    row, batch = {"cores": 0, "packet_delay_ns": 30_000}, {"kind": 1}
    for answer_ns, move_ns, wait_ns in ((9_000, 2_000, 36_000), (1_000, 2_000, 43_000), (90_000, 2_000, 30_500)):
        early, late = (row | {"answer_ns": answer_ns, "packet_delay_ns": wait_ns + more} for more in (0, 1))
        assert grants_of("delay", [early, batch], params=(50_000,), move_ns=move_ns) == [0, 8]
        assert grants_of("delay", [late, batch], params=(50_000,), move_ns=move_ns) == [1, 7]


def test_delay_gives_half_of_a_deadline_to_waiting() -> None:
    row = {"cores": 2, "deadline_ns": 12_000}
    assert grants_of("delay", [row | {"packet_delay_ns": 6_000}, {"kind": 1}]) == [2, 6]
    assert grants_of("delay", [row | {"packet_delay_ns": 6_001}, {"kind": 1}]) == [3, 5]


def test_delay_gives_a_core_that_nobody_wants_to_whoever_waits_at_all() -> None:
    assert grants_of("delay", [{"cores": 2, "packet_delay_ns": 1}]) == [3]


DEAR = {"batch_ns": 90_000, "moving_ns": 10_001}  # a tenth of what batch work could have, and a little more


def test_delay_takes_no_core_from_batch_work_to_which_moves_cost_too_much() -> None:
    late, batch = {"cores": 0, "packet_delay_ns": 10_001}, {"kind": 1, "cores": 8}
    assert grants_of("delay", [late, batch], batch_ns=90_000, moving_ns=10_000) == [1, 7]
    assert grants_of("delay", [late, batch], **DEAR) == [0, 8]
    assert grants_of("delay", [batch, late], **DEAR) == [8, 0]
    assert grants_of("delay", [late, batch], params=(0, 0, 11), **DEAR) == [1, 7]
    assert grants_of("delay", [late, batch], params=(0, 0, 100), batch_ns=0, moving_ns=1) == [1, 7]
    assert grants_of("shenango", [late, batch], **DEAR) == [1, 7]


@pytest.mark.parametrize(
    "row",
    [
        {"packet_delay_ns": 100_001},  # for no longer than 100 us
        {"packet_delay_ns": 10_001, "guaranteed": 1},
        {"packet_delay_ns": 10_001, "deadline_ns": 20_000},
    ],
)
def test_but_whoever_is_to_have_it_in_time_is_not_kept_waiting(row: dict[str, int]) -> None:
    assert grants_of("delay", [{"cores": 0} | row, {"kind": 1, "cores": 8}], **DEAR) == [1, 7]


def test_nor_is_a_core_held_back_that_batch_work_has_not_got() -> None:
    late = {"cores": 0, "packet_delay_ns": 10_001}
    assert grants_of("delay", [late, late, {"kind": 1, "cores": 7}], **DEAR) == [1, 0, 7]
    assert grants_of("delay", [late, {"cores": 2, "idle": 1}, {"kind": 1, "cores": 6}], **DEAR) == [1, 1, 6]


def test_what_was_not_wanted_is_not_owed() -> None:
    row = IN_USE | {"kind": lib.CL_POLICY_BATCH, "guaranteed": 0}
    view, out = table([row | {"cores": 1}, row], 1)
    fair = lib.cl_policy_find(b"fair")
    fair(view, out)
    out[0].attained_ns += 5_000_000
    fair(view, out)
    assert (out[0].grant, out[1].grant) == (0, 1)  # it is owed half of that
    out[1].demand = 0
    fair(view, out)
    assert out[0].grant == 1
    out[1].demand = 1
    fair(view, out)
    assert (out[0].grant, out[1].grant) == (1, 0)  # and wanted none of it


def test_fair_serves_whoever_attained_least() -> None:
    assert grants_of("fair", [{"kind": 1, "attained_ns": 10**9}, {"kind": 1}], cores=4) == [0, 4]


def test_static_keeps_what_is_guaranteed_whoever_could_use_it() -> None:
    parked, busy = {"guaranteed": 1}, {"guaranteed": 1, "cores": 1, "packet_delay_ns": 10**6}
    batch, resting = {"kind": 1}, {"kind": 1, "guaranteed": 2, "more": 0}
    assert grants_of("static", [parked, batch], cores=1) == [1, 0]
    assert grants_of("static", [busy, batch], cores=4) == [1, 3]
    assert grants_of("static", [parked, resting, batch, batch | {"more": 0}], cores=4) == [1, 2, 1, 0]


@pytest.mark.parametrize("name", ["shenango", "delay", "fair", "attained"])
def test_the_others_lend_what_is_guaranteed_to_who_can_use_it(name: str) -> None:
    resting = {"kind": 1, "guaranteed": 2, "more": 0}
    assert grants_of(name, [{"guaranteed": 1}, resting, {"kind": 1}], cores=4) == [0, 0, 4]


def test_batch_shares_the_rest_by_weight() -> None:
    rows = [{"cores": 2, "packet_delay_ns": 1}, {"kind": 1, "weight": 2}, {"kind": 1, "weight": 1}]
    assert grants_of("shenango", rows) == [2, 4, 2]
