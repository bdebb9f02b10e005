"""What applications may claim of managed cores, and where their kthreads begin."""

from __future__ import annotations

import pytest

from corelane.iokernel import AppConfig
from corelane.iokernel._native import ffi, lib
from corelane.iokernel.control.cores import Claim, ManagedCores, claim, not_granted, without_policy
from corelane.runtime.errors import Refused


def hello(**fields: int):
    message = ffi.new("struct cl_control_hello *")
    for key, value in fields.items():
        setattr(message, key, value)
    return message


def test_without_wishes_an_application_is_burstable_up_to_its_kthreads():
    assert claim("a", hello(), AppConfig(), 3) == Claim("latency", 0, 3, 1, 0, 0, False)


ASKED = hello(kind=lib.CL_CONTROL_BATCH, guaranteed=1, maximum=2, weight=5, deadline_us=100, quantum_us=7)


def test_a_wish_for_more_than_others_counts_for_nothing_by_default():
    assert claim("a", ASKED, AppConfig(), 4) == Claim("batch", 0, 2, 1, 100, 7, False)
    assert claim("a", hello(weight=1000, guaranteed=4), AppConfig(), 4) == claim("b", hello(), AppConfig(), 4)


def test_wishes_count_as_far_as_they_are_allowed():
    assert claim("a", ASKED, AppConfig(), 4, most_weight=9, most_guaranteed=3) == Claim("batch", 1, 2, 5, 100, 7, False)
    got = claim("a", hello(weight=9, guaranteed=4), AppConfig(max_cores=3), 4, most_weight=2, most_guaranteed=9)
    assert (got.weight, got.guaranteed, got.maximum) == (2, 3, 3)


def test_the_configuration_overrules_wishes():
    settings = AppConfig(class_="latency", guaranteed_cores=0, max_cores=1, weight=2, deadline_us=0, quantum_us=0)
    assert claim("a", ASKED, settings, 4, most_weight=9, most_guaranteed=9) == Claim("latency", 0, 1, 2, 0, 0, False)
    assert claim("a", hello(), AppConfig(guaranteed_cores=1, weight=7), 4) == Claim("latency", 1, 4, 7, 0, 0, False)
    assert claim("a", hello(), AppConfig(max_cores=9), 4).maximum == 4, "more than kthreads cannot be used"
    assert claim("a", hello(maximum=1), AppConfig(max_cores=3), 4).maximum == 1, "less may be wished for"
    with pytest.raises(Refused, match="2 guaranteed cores are more than a may use: 1, with 1 kthreads"):
        claim("a", hello(), AppConfig(guaranteed_cores=2), 1)


def test_what_is_not_granted_is_said_with_the_options_that_would_allow_it():
    assert not_granted("a", hello(), claim("a", hello(), AppConfig(), 2), 7) == ""
    settings = AppConfig(max_cores=1)
    asked = hello(weight=3, guaranteed=2, maximum=2)
    assert not_granted("a", asked, claim("a", asked, settings, 2), 7) == (
        "it has weight 1 instead of 3, guaranteed cores 0 instead of 2, cores at most 1 instead of 2: to allow more, "
        "the iokernel's configuration has weight, guaranteed_cores, max_cores of [apps.a], and [users.7]"
    )
    most = hello(weight=1000, guaranteed=64, maximum=64, quantum_signal=1)
    longest = not_granted("x" * 31, most, claim("a", hello(), settings, 64), 2**32)
    assert len(longest) < lib.CL_CONTROL_NOTE_BYTES


def test_a_signal_at_the_end_of_a_quantum_costs_the_loop_a_call_and_must_be_allowed():
    asked = hello(quantum_us=7, quantum_signal=1)
    assert not claim("a", asked, AppConfig(), 1).quantum_signal
    assert claim("a", asked, AppConfig(), 1, may_signal=True).quantum_signal
    assert claim("a", asked, AppConfig(quantum_signal=True), 1).quantum_signal
    assert claim("a", hello(quantum_us=7), AppConfig(quantum_signal=True), 1).quantum_signal
    assert not claim("a", asked, AppConfig(quantum_signal=False), 1, may_signal=True).quantum_signal
    assert not claim("a", hello(quantum_us=7), AppConfig(), 1, may_signal=True).quantum_signal, "it did not ask"
    said = not_granted("a", asked, claim("a", asked, AppConfig(), 1), 7)
    assert said.startswith("it has quantum signals 0 instead of 1: to allow more")
    assert "quantum_signal of [apps.a]" in said
    assert "quantum signals 1" in without_policy(asked)


def test_who_is_made_batch_work_has_its_quantum():
    batch = AppConfig(class_="batch")
    assert claim("a", hello(), batch, 1).quantum_us == 1000
    assert claim("a", hello(quantum_us=7), batch, 1).quantum_us == 7
    assert claim("a", hello(), AppConfig(class_="batch", quantum_us=0), 1).quantum_us == 0
    assert claim("a", hello(kind=lib.CL_CONTROL_BATCH), batch, 1).quantum_us == 0, "it asked for that"
    assert claim("a", hello(), AppConfig(class_="latency"), 1).quantum_us == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": 3}, "class 3 of a is none"),
        ({"guaranteed": 3}, "3 guaranteed cores are more than a may use: 2, with 2 kthreads"),
        ({"guaranteed": 2, "maximum": 1}, "more than a may use: 1"),
        ({"maximum": 3}, "max_cores 3 of a is more than its kthreads: 2"),
        ({"weight": 1001}, "weight 1001"),
        ({"deadline_us": 2**32 - 1}, "deadline 4294967295 us"),
        ({"quantum_us": 10_000_001}, "quantum 10000001 us"),
    ],
)
def test_claims_that_make_no_sense_are_refused(fields, said):
    with pytest.raises(Refused, match=said):
        claim("a", hello(**fields), AppConfig(), 2)


def test_worker_cpus_are_divided_among_the_loops():
    cores = ManagedCores([4, 5, 6, 7, 8, 5], 2)
    assert (cores.of_loop(0), cores.of_loop(1)) == ((4, 6, 8), (5, 7))
    assert cores.begin(0, 2) == (4, 6)
    assert cores.begin(1, 3) == (5, 7, 5), "more kthreads than cores is the normal case"


def test_an_application_goes_to_the_loop_that_can_keep_its_guarantee():
    cores = ManagedCores([4, 5, 6], 2)  # loop 0 has two
    assert cores.home("a", 0, []) == 0
    assert cores.home("b", 0, [("a", 0, 0)]) == 1, "the loop with the fewest"
    assert cores.home("b", 2, [("a", 1, 0)]) == 0
    assert cores.home("c", 1, [("a", 0, 1), ("b", 1, 1)]) == 0
    assert cores.home("c", 0, [("a", 0, 2)], loop=0) == 0, "no guarantee needs no room"
    with pytest.raises(Refused, match=r"2 guaranteed cores for d cannot be kept: 2 cores .*already: a 1, b 1"):
        cores.home("d", 2, [("a", 0, 1), ("b", 1, 1), ("c", 0, 0)])
    with pytest.raises(Refused, match=r"2 guaranteed cores for d cannot be kept: 1 core is managed \(lower apps\.d"):
        cores.home("d", 2, [("a", 0, 1)], loop=1)


def test_a_loop_without_worker_cores_gets_no_applications():
    cores = ManagedCores([4], 2)
    assert cores.home("b", 0, [("a", 0, 0)]) == 0
    with pytest.raises(Refused, match=r"loop 1, which serves b, has no worker core to give \(choose one of \[0\]\)"):
        cores.home("b", 0, [], loop=1)
