"""Attacks on connections of a runtime: bounded memory, counters that say what happened, and others go on."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from cltest.cbuild import ROOT

ATTACKS = "tests/libos/net/tcp/c/attacks.c"
CASES = re.findall(r"CASE\((\w+)\),", (ROOT / ATTACKS).read_text())


@pytest.mark.parametrize("kthreads", [1, 2])
@pytest.mark.parametrize("attack", CASES)
def test_attack(c_program: Callable[..., Callable[..., str]], attack: str, kthreads: int, seed: int) -> None:
    assert c_program(ATTACKS, one_thread=True)(attack, seed, kthreads) == "ok\n"
