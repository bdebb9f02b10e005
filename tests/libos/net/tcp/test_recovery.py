"""Loss recovery of the state machine: case by case, and whole transfers over a link that loses, doubles and reorders.

All times are those of a virtual clock: how long a transfer takes follows from the protocol alone, and from the seed.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from cltest.cbuild import ROOT

Program = Callable[..., Callable[..., str]]
PROGRAMS = ("tests/libos/net/tcp/c/recover.c", "tests/libos/net/tcp/c/recover_records.c")
BULK = "tests/libos/net/tcp/c/bulk.c"
CASES = [
    (program, case) for program in PROGRAMS for case in re.findall(r"CASE\((\w+)\),", (ROOT / program).read_text())
]
GBPS = 10
ALL, NO_SACK = 2 | 4 | 8, 2 | 8  # CL_TCPO_WSCALE, _SACK_OK, _TIMES
US, MS = 1_000, 1_000_000


@pytest.mark.parametrize(("program", "case"), CASES)
def test_case(c_program: Program, program: str, case: str) -> None:
    assert c_program(program, one_thread=True)(case) == "ok\n"


def transfer(
    c_program: Program, rtt_ns: int, n_bytes: int, *, loss: int = 0, twice: int = 0, late: int = 0, options: int = ALL
) -> dict[str, int]:
    """loss, twice, late in 1/1000. What the program says; it checks each byte."""
    out = c_program(BULK, one_thread=True)(1, n_bytes, loss, twice, late, rtt_ns, GBPS, options)
    return {name: int(value) for name, value in (line.split() for line in out.splitlines())}


def aimd_ns(n_bytes: int, rtt_ns: int, loss: int) -> float:
    """What AIMD takes for it, whose mean window loss bounds (RFC 5681; RFC 9438, section 4.3)."""
    return n_bytes / (1448 * (1.5 * 1000 / loss) ** 0.5) * rtt_ns


@pytest.mark.parametrize("loss", [1, 10])
@pytest.mark.parametrize("rtt_us", [5, 20, 50])
def test_goodput_with_loss_at_tiny_round_trips(c_program: Program, rtt_us: int, loss: int) -> None:
    """No flow stands still, and 0.6 of what it is without loss, or of what the congestion control allows at that."""
    n_bytes = 8_000_000
    none = transfer(c_program, rtt_us * US, n_bytes)
    some = transfer(c_program, rtt_us * US, n_bytes, loss=loss)
    assert none["resent"] == 0
    assert some["resent"] > 0
    best_ns = max(none["took_ns"], aimd_ns(n_bytes, rtt_us * US, loss))
    assert best_ns / some["took_ns"] >= 0.6
    assert some["timeouts"] == 0
    assert some["longest_ns"] < MS


@pytest.mark.parametrize("options", [ALL, NO_SACK], ids=["sack", "without sack"])
@pytest.mark.parametrize("rtt_ns", [20 * US, 10 * MS], ids=["20us", "10ms"])
@pytest.mark.parametrize("loss", [1, 10, 50])
def test_every_byte_comes_over_a_bad_link(c_program: Program, loss: int, rtt_ns: int, options: int) -> None:
    n_bytes = 2_000_000
    came = transfer(c_program, rtt_ns, n_bytes, loss=loss, twice=10, late=20, options=options)
    assert came["lost"] > 0
    assert came["took_ns"] < 10_000 * MS


def test_what_overtakes_and_comes_twice_is_hardly_sent_again(c_program: Program) -> None:
    came = transfer(c_program, 20 * US, 4_000_000, twice=10, late=20)
    assert came["dsacks"] > 10
    assert came["resent"] < came["sent"] // 100
    assert came["timeouts"] == 0
