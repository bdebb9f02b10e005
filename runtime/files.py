"""Files that are there as a whole or not at all, and why one cannot be read."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path


def write_whole(path: str | Path, data: bytes) -> None:
    """Make a file of it, or replace one, durably: a crash leaves the old one or the new one. Raises OSError.

    The error names the path. What is there and is no regular file, as /dev/null or a pipe, is written to and stays what
    it is, but for a block device, which is refused. Behind a symbolic link the file that it names is replaced.
    """
    try:
        _write_whole(path, data)
    except OSError as error:
        error.filename = error.filename or os.fspath(path)  # that of a write has none
        raise


def _write_whole(path: str | Path, data: bytes) -> None:
    target = Path(os.path.realpath(path))
    with contextlib.suppress(FileNotFoundError):
        kind = Path(path).stat().st_mode
        if stat.S_ISBLK(kind):
            raise OSError(errno.EINVAL, "it is a block device, and whatever it holds would be lost")
        if not stat.S_ISREG(kind):
            Path(path).write_bytes(data)
            return
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f"{target.name}.", delete=False) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, _mode(target))
            os.replace(file.name, target)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(file.name).unlink()
            raise
    sync_folder(target.parent)


def why_unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Why the text of a file could not be read, in words."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    line = error.object.count(b"\n", 0, error.start) + 1
    return f"line {line} is no UTF-8: it has the byte 0x{error.object[error.start]:02x}"


def _mode(target: Path) -> int:
    """Permission bits: of the file that is replaced, else what a new one gets."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def sync_folder(folder: Path) -> None:
    """A name given in it is there after a crash of the machine, too."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
