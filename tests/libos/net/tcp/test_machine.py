"""TCP's state machine between two made-up hosts: what it does case by case, and bytes through bad networks.

The programs are the machine alone: no NIC, no thread, no clock but their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from cltest import soak
from cltest.cbuild import ROOT

Program = Callable[..., Callable[..., str]]
SCENARIOS = ("tests/libos/net/tcp/c/scenarios.c", "tests/libos/net/tcp/c/scenarios_data.c")
TRANSFER = "tests/libos/net/tcp/c/transfer.c"
CASES = [
    (program, case) for program in SCENARIOS for case in re.findall(r"    CASE\((\w+)\),", (ROOT / program).read_text())
]
# Bytes at most; loss, doubles and overtaking in 1/1000; delay in us; chunks of each host.
NETWORKS = {
    "good": (200_000, 0, 0, 0, 1000, 1000),
    "lossy": (100_000, 50, 20, 50, 10_000, 1000),
    "awful": (20_000, 250, 200, 300, 500, 1000),
    "without memory": (60_000, 20, 20, 50, 50, 12),
    # Not 0: in no time at all two ends can send and refuse without an end, before a reader gives memory back.
    "at once": (60_000, 10, 0, 0, 1, 60),
}


@pytest.mark.parametrize(("program", "case"), CASES)
def test_case(c_program: Program, program: str, case: str) -> None:
    assert c_program(program, one_thread=True)(case) == "ok\n"


@pytest.mark.soak(short=True, takes_s=1)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_byte_comes_once_and_all_ends(c_program: Program, network: str, seed: int) -> None:
    rounds = soak.examples(60, 3000)
    assert c_program(TRANSFER, one_thread=True)(seed, *NETWORKS[network], rounds) == "ok\n"


@pytest.mark.soak(short=True, takes_s=1)
@pytest.mark.parametrize("steps", [300, 5000])
def test_nothing_is_left_of_whatever_happened(c_program: Program, steps: int, seed: int) -> None:
    rounds = soak.examples(60_000, 3_000_000) // steps
    assert c_program("tests/libos/net/tcp/c/fuzz_machine.c", one_thread=True)(seed, rounds, steps) == "ok\n"


@pytest.mark.parametrize("network", ["good", "lossy", "without memory"])
def test_what_is_predicted_is_handled_as_all_else(c_program: Program, network: str, seed: int) -> None:
    """Byte for byte, and at the same times: with the short way of segments and without."""
    run = c_program(TRANSFER, one_thread=True)
    assert run(seed, *NETWORKS[network], 10, 1) == run(seed, *NETWORKS[network], 10, 0)


def test_what_is_predicted_is_handled_as_all_else_whatever_happens(c_program: Program, seed: int) -> None:
    run = c_program("tests/libos/net/tcp/c/fuzz_machine.c", one_thread=True)
    assert run(seed, 100, 300, 1) == run(seed, 100, 300, 0)


# Who closes first (0: who opened, 1: the other, 2: both), whether both open; how many segments are lost, how many are
# kept to come again, how many timers come at any time, how many hosts restart.
EXPLORED = {
    "one loss": ((0, 0, 1, 0, 0, 0), True),
    "one loss, the other closes": ((1, 0, 1, 0, 0, 0), True),
    "one loss, both close": ((2, 0, 1, 0, 0, 0), True),
    "two losses": ((0, 0, 2, 0, 0, 0), True),
    "a restart": ((0, 0, 0, 0, 0, 1), True),
    "both open": ((1, 1, 0, 0, 0, 0), True),
    "a loss and a double": ((0, 0, 1, 1, 0, 0), False),
    "a double, both close": ((2, 0, 0, 1, 0, 0), False),
    "a loss and an early timer": ((1, 0, 1, 0, 1, 0), False),
    "a loss, both open": ((1, 1, 1, 0, 0, 0), False),
    "a loss and a restart": ((0, 0, 1, 0, 0, 1), False),
}


@pytest.mark.parametrize(
    "what",
    [pytest.param(what, marks=[pytest.mark.soak(short=short, takes_s=10)]) for what, (_, short) in EXPLORED.items()],
)
def test_whatever_happens_all_ends_and_no_byte_is_wrong(c_program: Program, what: str) -> None:
    budget, _ = EXPLORED[what]
    out = c_program("tests/libos/net/tcp/c/explore_machine.c", one_thread=True)(*budget)
    states, ok = out.splitlines()
    assert ok == "ok"
    assert int(states.split()[0]) > 1000


RUNTIME = {  # what makes it a runtime's
    *("net", "flows", "turns", "traced", "arrive", "frames", "open"),
    *("sockets", "visits", "accept", "stream", "sockopt", "serve", "bursts"),
}
BYTES = ("icmp.h", "segment.h", "runtime/net.h")


def test_the_machine_needs_no_other_room() -> None:
    """Only chunks, hashes and what reads bytes of libos/net: the machine knows no NIC and no clock, and but for leases,
    which come back from anywhere, no thread."""
    for path in (ROOT / "libos/net/tcp").iterdir():
        if path.stem not in RUNTIME:
            outside = set(re.findall(r'#include [<"](?:\.\./|corelane/)+([^">]+)', path.read_text()))
            assert outside <= {*BYTES, "chunk.h", "flow_hash.h", "runtime/base.h", "libos/tcp.h", "libos/spin.h"}, path
