"""TCP against Linux', under anything: users, wires and segments that are drawn from seeds. Needs root.

fuzz_kernel.c puts a bad wire between both and looks at the bytes. compare_kernel.c gives both the same segments and
calls, and looks at what they answer: where they may differ, and why, stands there. What was found has its seed here.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cltest import netns_missing, soak

pytestmark = pytest.mark.root

# Seeds of cases of compare_kernel.c in which something was wrong, and what. There was also a FIN before bytes that
# waited behind it, which ended no stream: scripts/reassembly/fin-before-what-waits.pkt.
FOUND = {
    74: "a reset with the number of the peer's FIN was challenged",
    100: "the end of a stream was told as an error when a reset came behind it",
    2652: "a reset with a SYN, at the number of the SYN that had opened, ended a connection that was half open",
    130178553: "the comparison took what lay before data of the handshake for what was next",
}

Run = Callable[..., str]


@pytest.fixture
def program(c_program: Callable[..., Run]) -> Callable[[str], Run]:
    """One of c/*_kernel.c."""
    if missing := netns_missing():
        pytest.skip(missing)
    return lambda name: c_program(f"tests/libos/net/tcp/c/{name}_kernel.c", one_thread=True)


@pytest.mark.soak(short=True, takes_s=60)
def test_no_byte_is_wrong_and_nothing_is_left(program: Callable[[str], Run], seed: int) -> None:
    print(f"seeds from {seed} on")
    said = program("fuzz")(seed, soak.examples(40, 4000), 60, soak.examples(10_000, 100_000))
    print(said)
    assert said.endswith("\nok\n")


@pytest.mark.soak(short=True, takes_s=60)
def test_both_answer_the_same(program: Callable[[str], Run], seed: int) -> None:
    print(f"seeds from {seed} on")
    said = program("compare")(seed, soak.examples(300, 30_000))
    print(said)
    assert said.endswith("\nok\n")


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_is_right_now(program: Callable[[str], Run], seed: int) -> None:
    assert program("compare")(seed, 1).endswith("\nok\n")
