"""Fixtures of the tests of storage areas: a folder and a device that have some, and an iokernel that gives them out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cltest.areas import MIB, device

from corelane.drivers.blk import loop as blk_loop
from corelane.iokernel import Iokernel
from corelane.iokernel.areas.areas import Areas, DirectoryStore, Store


def made(request: pytest.FixtureRequest, tmp_path: Path, *, trusted: bool) -> Iterator[Store]:
    if request.param == "device" and (why := blk_loop.missing()):
        pytest.skip(why)
    folder = str(tmp_path / "d")
    kind = request.param
    store: Store = DirectoryStore(folder, 15 * MIB) if kind == "directory" else device(tmp_path, trusted=trusted)
    yield store
    store.close()


@pytest.fixture(params=["directory", "device"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    yield from made(request, tmp_path, trusted=False)


@pytest.fixture(params=["directory", "device"])
def shared_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """One that gives areas to all users."""
    yield from made(request, tmp_path, trusted=True)


@pytest.fixture
def serving(store: Store, tmp_path: Path) -> Iterator[str]:
    """Socket of an iokernel that gives out areas."""
    path = str(tmp_path / "sock")
    with Iokernel(path, areas=Areas(store, quota=10 * MIB), poll="block"):
        yield path
