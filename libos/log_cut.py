"""Log files that end within their superblocks: too short to be opened as a block device, which would say why."""

from __future__ import annotations

import errno
import os
import stat
import struct

from ..runtime.errors import CorelaneError

_SUPERBLOCKS_BYTES = 2 * 4096
_MAGIC, _AREA_BYTES = b"conelog1", struct.Struct("<24xQ")  # as storage/log_disk.h has them


def refuse_cut(path: str | os.PathLike[str], hint: str = "restore it from a copy") -> None:
    """Raise CorelaneError, with EBADMSG, if a log's file is shorter than its superblocks. Of others opening judges."""
    try:
        about = os.stat(path)
        if not stat.S_ISREG(about.st_mode) or about.st_size >= _SUPERBLOCKS_BYTES:
            return
        with open(path, "rb") as file:
            head = file.read(_AREA_BYTES.size)
    except OSError:
        return
    why = f"the file was cut short, or is no log: it ends at offset {about.st_size}, in the superblocks"
    if len(head) == _AREA_BYTES.size and head.startswith(_MAGIC):
        why += f", and by the first of these it should be {_AREA_BYTES.unpack(head)[0]} bytes long"
    raise CorelaneError(f"open the log {os.fspath(path)}", why, hint, errno.EBADMSG)
