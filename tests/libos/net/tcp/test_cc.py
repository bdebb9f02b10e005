"""Congestion control by itself (libos/net/tcp/cc.h), without a connection: how windows grow and fall."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from cltest.cbuild import ROOT

PROGRAM = "tests/libos/net/tcp/c/cc.c"
CASES = re.findall(r"CASE\((\w+)\),", (ROOT / PROGRAM).read_text())


@pytest.mark.parametrize("case", CASES)
def test_case(c_program: Callable[..., Callable[..., str]], case: str) -> None:
    assert c_program(PROGRAM, one_thread=True)(case) == "ok\n"
