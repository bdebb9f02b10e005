"""The laboratory's loop, compiled once for all workers."""

import pytest
from cltest.compiled import compile_lab_once


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    compile_lab_once()
