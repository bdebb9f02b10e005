"""The demo's last line."""

from __future__ import annotations

from typing import Any

import pytest

from corelane.bench import demo


def document(gap_us: float, answered: int = 1000) -> dict[str, Any]:
    row = {"name": demo.OURS, "achieved_rps": 2e6, "sent": 1000, "answered": answered, "dropped": 0, "p50_us": 3.0}
    return {"arms": [row], "canary": {"max_us": gap_us}}


def test_a_curve_of_which_nothing_was_carried_is_said_so() -> None:
    assert demo.closing(document(100.0, answered=500)).startswith("no load was carried")
    assert demo.closing(document(100.0) | {"arms": []}).startswith("no load was carried")


@pytest.mark.parametrize("gap_us", [100.0, 4000.0])
def test_a_machine_that_stood_still_is_told_with_the_rate(gap_us: float) -> None:
    said = demo.closing(document(gap_us))
    assert said.startswith("corelane kv: 2.00 million requests/s through one core, p50 3 us when unloaded")
    assert ("stood still for up to 4 ms" in said) is (gap_us == 4000.0)


def test_a_ratio_over_another_link_has_that_over_one_link_beside_it() -> None:
    made = document(100.0)
    made["arms"] += [made["arms"][0] | {"name": demo.MEMCACHED, "achieved_rps": 1e5}]
    assert demo.closing(made).endswith("; 20 times memcached UDP")
    made["arms"] += [made["arms"][0] | {"name": demo.OVER_AF_XDP, "achieved_rps": 2.5e5}]
    assert demo.closing(made).endswith("; 20 times memcached UDP (2.5 times with both on a veth pair)")


def test_a_loud_run_tells_no_rate_without_saying_that_it_is_not_judged() -> None:
    made = document(100.0)
    made["canary"] |= {"loud": True, "worst_lost_fraction": 0.5, "bound_lost_fraction": 0.05, "worst_cpu": 1}
    assert demo.closing(made).endswith(
        "; none of it is judged: the canary lost 50 % of core 1, and 5 % is the most that is judged"
    )
