"""The laboratory's loop, compiled once for all workers."""

import pytest
from cltest.simulator import compile_lab_once


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    compile_lab_once()
