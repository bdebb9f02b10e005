"""Fixtures for tests of the control server alone, without an iokernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from cltest.registry import GrantingRegistry, serving

from corelane.iokernel.control.server import ControlServer


@pytest.fixture
def serve(socket_path: str) -> Iterator[Callable[[], tuple[ControlServer, GrantingRegistry]]]:
    """`server, registry = serve()`: a control server over a GrantingRegistry, in a thread."""
    with ExitStack() as stack:

        def start() -> tuple[ControlServer, GrantingRegistry]:
            registry = GrantingRegistry()
            server = stack.enter_context(serving(ControlServer(socket_path, registry)))
            stack.callback(registry.loaded.set)
            return server, registry

        yield start
