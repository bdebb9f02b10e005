"""Leases of what came, and regions to send from: stream sockets and the event form. The machine alone: test_machine.py.

Under sanitizers, which see whoever touches what is not theirs any more.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

Program = Callable[..., Callable[..., str]]


@pytest.mark.parametrize("kthreads", [1, 2])
def test_whose_the_bytes_are(c_program: Program, kthreads: int) -> None:
    assert c_program("tests/libos/net/tcp/c/leases.c")(kthreads) == "ok\n"
