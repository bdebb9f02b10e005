"""Managed cores, stepped on a clock of their own (C programs): each transition, and random events; docs/cores.md."""

from __future__ import annotations

import pytest
from cltest.cbuild import default_variant

from corelane.bench.colocate.arms import no_fifo


def test_every_transition_of_a_move(c_program):
    run = c_program("tests/iokernel/cores/c/steps.c")
    assert "passed hostile_words" in run(timeout_s=90)


def test_who_gets_a_core_and_which(c_program):
    run = c_program("tests/iokernel/cores/c/choice.c")
    assert "passed ages_are_from_below" in run(timeout_s=90)


@pytest.mark.parametrize(
    "scenario",
    [
        "a_sibling_takes_the_place_of_the_dead",
        "the_dead_want_nothing",
        "nothing_waits_where_all_is_new",
        "one_core_at_a_look_is_no_neglect",
        "nor_is_it_the_next_time",
        "who_has_no_calls_left_holds_no_core_back",
    ],
)
def test_no_core_idles_beside_one_that_waits(c_program, scenario):
    run = c_program("tests/iokernel/cores/c/conserve.c")
    assert f"passed {scenario}" in run(scenario, timeout_s=90)


@pytest.mark.parametrize(
    "scenario",
    [
        "batch_loses_its_core_before_latency",
        "a_guarantee_goes_before_latency",
        "who_waits_inside_a_uthread_goes_before_its_sibling",
        "urgent_decisions_are_a_microsecond_apart_on_average",
        "an_application_that_lost_a_core_gets_its_frames_at_the_other",
        "who_is_evicted_leaves_the_core",
        "who_was_evicted_gets_back_what_it_had",
        "who_gets_another_core_meanwhile_is_not_evicted",
        "who_is_made_to_leave_may_run_meanwhile",
        "the_log_has_the_signal",
        "the_loop_sleeps_no_longer_than_until_a_timer_at_rest",
        "the_loop_sleeps_no_longer_than_until_one_is_considered_again",
        "who_waits_while_it_is_banned_gets_a_core_afterwards",
        "a_core_that_nobody_owns_is_not_busy",
    ],
)
def test_who_goes_first_and_what_is_left_behind(c_program, scenario):
    run = c_program("tests/iokernel/cores/c/order.c")
    assert f"passed {scenario}" in run(scenario, timeout_s=90)


def test_kthreads_that_use_a_core_which_is_not_theirs(c_program):
    run = c_program("tests/iokernel/cores/c/overrun.c")
    assert "passed demoted_it_may_go_to_another_core" in run(timeout_s=90)


def test_new_owners_that_are_late(c_program):
    run = c_program("tests/iokernel/cores/c/late.c")
    assert run(timeout_s=90).count("passed ") == 7


def test_when_the_delay_policy_gives_a_core(c_program):
    run = c_program("tests/iokernel/cores/c/target.c")
    assert run(timeout_s=90).count("passed ") == 5


@pytest.mark.parametrize(
    "scenario",
    [
        "who_waits_gets_it_as_soon_as_it_has_arrived",
        "an_arrival_that_nobody_waits_for_costs_nothing",
        "it_turns_back_to_who_let_go_of_it",
        "who_begins_meanwhile_is_asked",
        "it_does_not_turn_while_the_old_owner_is_there",
        "it_does_not_turn_among_equals",
        "it_turns_once",
        "one_that_never_begins_is_passed_over",
        "so_is_one_that_has_been_waited_for",
    ],
)
def test_who_waits_for_a_core_that_is_on_its_way_to_another(c_program, scenario):
    run = c_program("tests/iokernel/cores/c/arrive.c")
    assert f"passed {scenario}" in run(scenario, timeout_s=90)


@pytest.mark.parametrize("scenario", ["equals_take_turns", "by_weight", "who_seldom_asks_waits_for_a_turn_at_most"])
def test_latency_applications_that_share_a_core(c_program, scenario):
    run = c_program("tests/iokernel/cores/c/equals.c")
    assert f"passed {scenario}" in run(scenario, timeout_s=90)


def test_who_has_seen_the_ask_gets_one_interval_more(c_program):
    run = c_program("tests/iokernel/cores/c/seen.c")
    assert "passed asked_again_it_gains_no_more" in run(timeout_s=90)


@pytest.mark.parametrize(
    "scenario",
    [
        "one_that_runs_on_is_evicted",
        "one_that_sleeps_is_evicted_at_once",
        "in_a_call_it_is_asked_for_longer",
        "one_that_says_so_all_the_time_gains_a_step",
        "one_in_a_call_that_nothing_ends_is_spared",
        "in_a_call_it_has_a_step_more",
        "without_calls_left_the_signal_is_left_out",
        "one_that_lets_go_at_once_is_not_logged_as_there",
    ],
)
def test_whoever_has_time_to_cede_and_does_not_is_evicted(c_program, scenario):
    run = c_program("tests/iokernel/cores/c/starved.c")
    assert f"passed {scenario}" in run(scenario, timeout_s=90)


@pytest.mark.parametrize(
    "scenario",
    [
        "one_that_exits_gives_way",
        "it_is_asked_to_no_more_than_so_often",
        "it_is_removed",
        "one_that_lives_is_only_evicted",
        "the_new_owner_of_a_dead_one_is_woken_at_once",
    ],
)
def test_who_was_killed_gives_way_to_the_new_owner(c_program, scenario):
    run = c_program("tests/iokernel/cores/c/dying.c")
    assert f"passed {scenario}" in run(scenario, timeout_s=90)


@pytest.mark.skipif(bool(no_fifo()), reason=f"keeps a thread from the CPU by SCHED_FIFO: {no_fifo()}")
@pytest.mark.parametrize(
    "scenario",
    [
        "starved_it_is_not_evicted",
        "starved_it_is_spared_no_longer_than_start_us",
        "starved_it_keeps_nobody_from_its_core",
        "starved_it_is_evicted_when_the_new_owner_goes",
        "starved_since_the_first_look_it_is_spared",
        "starved_the_log_has_it_that_it_is_still_there",
        "starved_it_goes_and_the_next_one_has_all_its_steps",
    ],
)
def test_one_without_time_to_cede_is_spared(c_program, scenario):
    run = c_program("tests/iokernel/cores/c/starved.c")
    assert f"passed {scenario}" in run(scenario, timeout_s=90)


@pytest.mark.parametrize("policy", ["delay", "shenango", "fair"])
def test_what_holds_at_every_instant(c_program, seed, policy):
    asked = ("io_thread_account", "io_thread_status", "io_thread_in_line")
    run = c_program("tests/iokernel/cores/c/random.c", libs=[f"-Wl,--wrap={name}" for name in asked])
    said = run(policy, str(seed), "100000", timeout_s=90)
    assert " 0 violations" in said
    if default_variant() == "plain":  # TSan runs handlers of signals when it likes to
        assert run(policy, str(seed), "100000", timeout_s=90) == said, "only the seed decides"
