"""Attacks on connections of a runtime: bounded memory, counters that say what happened, others go on, and work for the
attacker is bounded, too."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from cltest.cbuild import ROOT, CBuild, default_variant

from corelane.drivers.nic.tcpload.tcpload import ATTACKS as BENCHED

PROGRAMS = [f"tests/libos/net/tcp/c/{name}.c" for name in ("attacks", "attack_held")]
CASES = [
    pytest.param(program, case, id=case)
    for program in PROGRAMS
    for case in re.findall(r"CASE\((\w+)\),", (ROOT / program).read_text())
]


@pytest.mark.parametrize("kthreads", [1, 2])
@pytest.mark.parametrize(("program", "attack"), CASES)
def test_attack(
    c_program: Callable[..., Callable[..., str]], program: str, attack: str, kthreads: int, seed: int
) -> None:
    assert c_program(program, one_thread=True)(attack, seed, kthreads) == "ok\n"


def test_ten_thousand_slow_readers_end_in_back_pressure(
    c_program: Callable[..., Callable[..., str]], seed: int
) -> None:
    assert c_program(PROGRAMS[0], one_thread=True)("slow_readers", seed, 2, 10_000) == "ok\n"


Steps = Callable[[int, int], int]
FEW, MANY = 20, 400  # connections of an attacker: fewer than half of the memory has chunks
SENDING = {name: kind for name, kind in BENCHED.items() if name != "all ports"}  # those open, and say nothing more


@pytest.fixture(scope="module")
def steps() -> Steps:
    """Basic blocks of the stack's code that a segment of an attacker (0: a request and its answer) takes, if it has so
    many connections."""
    if default_variant() != "plain":
        pytest.skip("what is counted is counted without sanitizers")
    builder = CBuild("plain")
    files = sorted((ROOT / "libos/net/tcp").glob("*.c"))
    counted = [p.relative_to(ROOT) for p in files if not p.name.startswith("host")]
    run = builder.runner(builder.build_counted("tests/libos/net/tcp/c/attack_steps.c", counted), one_thread=True)
    return lambda kind, connections: int(run(kind, connections))


# Basic blocks of a request and its answer when all went the long ways (input.c, output.c), which those of attackers go.
LONG_WAY = 409


def test_a_request_goes_the_short_ways(steps: Steps) -> None:
    assert 20 < steps(0, 1) < 0.75 * LONG_WAY


@pytest.mark.parametrize("attack", SENDING)
def test_a_segment_of_an_attacker_costs_no_more_than_a_request(steps: Steps, attack: str) -> None:
    """However many connections he has, and whatever waits of them."""
    few, many = steps(SENDING[attack], FEW), steps(SENDING[attack], MANY)
    assert 20 < few < 1.5 * LONG_WAY
    assert many < 1.5 * few
