"""Pages of what a pool hands out: there before they are needed, and no more of them than that."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize("case", ["stays_ahead", "catches_up", "gives_up", "together"])
def test_pages_are_fetched_ahead(c_program: Callable[..., Callable[..., str]], case: str) -> None:
    assert c_program("tests/runtime/c/ahead.c")(case) == "ok\n"
