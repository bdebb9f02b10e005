"""All tests of the simulator find it compiled."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _compiled(simulator: None) -> None:
    """See the fixture `simulator`."""
