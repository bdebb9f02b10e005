"""The laboratory's loop, compiled once for all workers."""

from collections.abc import Iterator

import pytest
from cltest.simulator import compile_lab_once, lab_cache


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORELANE_CACHE_DIR", lab_cache())
        compile_lab_once()
        yield
