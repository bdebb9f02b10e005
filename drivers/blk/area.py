"""A storage area of an iokernel as a block device (docs/storage.md)."""

from __future__ import annotations

import os
from typing import Any

from ...runtime import control
from ...runtime._native import lib
from .file import FileBlk


class AreaBlk(FileBlk):
    """The area `name` of the iokernel on `socket_path`, ours until it is closed. options: of FileBlk.

    Raises CorelaneError: there is none of that name, it is not ours, somebody else has it open.
    """

    def __init__(self, socket_path: str, name: str, **options: Any) -> None:
        answer, fd, self._claim = control.area(socket_path, lib.CL_CONTROL_AREA_OPEN, name)
        area = answer["area"]
        if not answer["limited"]:  # the whole device: we are trusted to keep to our part, and others use theirs
            options |= {"part": (area["offset"], area["bytes"]), "shared": True}
        try:
            super().__init__(fd, **options)
        except BaseException:
            os.close(fd)
            os.close(self._claim)
            raise

    def close(self) -> None:
        """Close the device and let go of the area. A device that wraps this one does so when it is closed itself."""
        super().close()
        claim, self._claim = self._claim, -1
        if claim >= 0:
            os.close(claim)
