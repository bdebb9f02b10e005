"""Every built-in policy on random tables: grants that the mechanism accepts, latency before batch, guarantees kept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.iokernel._native import ffi, lib

NAMES = []
while (_name := lib.cl_policy_name(len(NAMES))) != ffi.NULL:
    NAMES.append(ffi.string(_name).decode())

tables = st.lists(
    st.fixed_dictionaries(
        {
            "packet_delay_ns": st.sampled_from([0, 1, 4_999, 5_000, 10_001, 10**9]),
            "thread_delay_ns": st.sampled_from([0, 7_000]),
            "attained_ns": st.integers(0, 10**12),
            "cores": st.integers(0, 8),
            "guaranteed": st.integers(0, 4),
            "maximum": st.integers(0, 16),
            "kind": st.sampled_from([lib.CL_POLICY_LATENCY, lib.CL_POLICY_BATCH]),
            "weight": st.integers(0, 5),
        }
    ),
    min_size=1,
    max_size=16,
)


def table(rows: list[dict[str, int]], cores: int) -> tuple[Any, Any]:
    """The view and the applications as C sees them."""
    view = ffi.new("struct cl_policy_view *")
    view.now_ns, view.interval_ns, view.n_apps, view.n_cores = 10**9, 5000, len(rows), cores
    out = ffi.new("struct cl_policy_app[]", len(rows))
    for a, row in zip(out, rows, strict=True):
        for key, value in row.items():
            setattr(a, key, value)
        a.idle = 0 if a.packet_delay_ns else a.cores // 2
    return view, out


@pytest.mark.parametrize("name", NAMES)
@given(rows=tables, cores=st.integers(1, 16))
def test_settled_grants_fit(name: str, rows: list[dict[str, int]], cores: int) -> None:
    view, out = table(rows, cores)
    lib.cl_policy_find(name.encode())(view, out)
    lib.cl_policy_settle(view, out)
    assert sum(a.grant for a in out) <= cores
    assert all(a.grant <= a.maximum for a in out)
    # Latency goes without what it was guaranteed and can use only where no batch application holds anything.
    latency = [a for a in out if a.kind == lib.CL_POLICY_LATENCY and max(a.packet_delay_ns, a.thread_delay_ns)]
    if any(a.grant < min(a.guaranteed, a.maximum, cores) for a in latency):
        assert all(a.grant == 0 for a in out if a.kind == lib.CL_POLICY_BATCH)


@pytest.mark.parametrize("name", NAMES)
@given(rows=tables, cores=st.integers(1, 16))
def test_nothing_else_is_written(name: str, rows: list[dict[str, int]], cores: int) -> None:
    view, out = table(rows, cores)
    lib.cl_policy_find(name.encode())(view, out)
    for a, row in zip(out, rows, strict=True):
        assert {k: getattr(a, k) for k in row} == row


@given(grants=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=16), cores=st.integers(1, 256))
def test_nonsense_is_cut(grants: list[int], cores: int) -> None:
    view, out = table([{"maximum": 300, "weight": 1} for _ in grants], cores)
    for a, grant in zip(out, grants, strict=True):
        a.grant = grant
    changed = lib.cl_policy_settle(view, out)
    assert sum(a.grant for a in out) <= cores
    assert changed or [a.grant for a in out] == grants


def grants_of(
    name: str, rows: list[dict[str, int]], cores: int = 8, params: tuple[int, ...] = (), calls: int = 1
) -> list[int]:
    """What a policy grants, at the last of so many calls."""
    view, out = table([{"maximum": 8, "weight": 1} | row for row in rows], cores)
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
    assert grants_of("delay", [{"cores": 2, "packet_delay_ns": 9_999}]) == [2]
    assert grants_of("delay", [{"cores": 2, "packet_delay_ns": 10_001}]) == [3]
    assert grants_of("delay", [{"cores": 2, "packet_delay_ns": 10_001}], params=(50_000,)) == [2]
    assert grants_of("delay", [{"cores": 4}]) == [4]  # calm, but not for long enough
    assert grants_of("delay", [{"cores": 4}], calls=2) == [2]
    assert grants_of("delay", [{"cores": 2, "packet_delay_ns": 7_000, "deadline_ns": 6_000}]) == [3]


def test_fair_serves_whoever_attained_least() -> None:
    assert grants_of("fair", [{"kind": 1, "attained_ns": 10**9}, {"kind": 1}], cores=4) == [0, 4]


def test_batch_shares_the_rest_by_weight() -> None:
    rows = [{"cores": 2, "packet_delay_ns": 1}, {"kind": 1, "weight": 2}, {"kind": 1, "weight": 1}]
    assert grants_of("shenango", rows) == [2, 4, 2]
