"""The event loop's extension under ASan and UBSan: its own tests, and connections that do what comes to mind."""

from __future__ import annotations

from pathlib import Path

import pytest
import sanitized

HERE = Path(__file__).parent
FILES = ("handles", "loop", "transports", "streams", "sock_calls", "datagrams", "groups", "references", "hostile")
SEEDS = 3
TIMEOUT_S = 600.0


@pytest.mark.soak(takes_s=90)
def test_its_tests_under_the_sanitizers() -> None:
    files = [str(HERE / f"test_{name}.py") for name in FILES]
    words = ("pytest", "-q", "-n", "0", "-p", "no:cacheprovider")
    said = sanitized.build().run(*words, *files, timeout_s=TIMEOUT_S)
    assert " passed" in said


@pytest.mark.soak(takes_s=60)
def test_connections_that_do_what_comes_to_mind_under_the_sanitizers() -> None:
    built = sanitized.build()
    for seed in range(SEEDS):
        built.run(str(HERE / "test_stress.py"), str(seed), "40", timeout_s=TIMEOUT_S)
