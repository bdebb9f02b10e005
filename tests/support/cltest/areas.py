"""Storage areas, for tests that make them by hand."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

from corelane.drivers.blk import file as blk_file
from corelane.iokernel._native import lib
from corelane.iokernel.areas.device import DeviceStore, open_device
from corelane.runtime.errors import CorelaneError
from corelane.runtime.peers import Peer

from .waiting import wait_until

MIB, UNIT = 1 << 20, 4096
ROOT = Peer(1, 0, 0, frozenset())
ANNA, BERT = Peer(2, 12001, 1, frozenset()), Peer(3, 12002, 1, frozenset())
LIST, CREATE, GROW = lib.CL_CONTROL_AREA_LIST, lib.CL_CONTROL_AREA_CREATE, lib.CL_CONTROL_AREA_GROW
DELETE, OPEN = lib.CL_CONTROL_AREA_DELETE, lib.CL_CONTROL_AREA_OPEN


def device(tmp_path: Path, size: int = 16 * MIB, *, trusted: bool = False) -> DeviceStore:
    """A file in a disk's place."""
    if not (tmp_path / "disk").exists():
        blk_file.create(tmp_path / "disk", size)
    return open_device(str(tmp_path / "disk"), trusted=trusted)


def delete_soon(delete: Callable[[], object]) -> None:
    """Delete an area that somebody who has just ended may still have open for a moment."""

    def deleted() -> bool:
        try:
            delete()
        except CorelaneError as error:
            assert error.errno == errno.EBUSY
            return False
        return True

    wait_until(deleted, what="the area to be free again")
