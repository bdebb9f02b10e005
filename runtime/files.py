"""Files that are there as a whole or not at all, why one cannot be read, and opening those that others chose."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO


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
    with contextlib.closing(Whole(path)) as made:
        made.file.write(data)
        made.keep()


class Whole:
    """A file that is written bit by bit: `file`, which is in its place once `keep` was called, or never. Which files
    are replaced, and which written to, as of write_whole. Raises OSError."""

    def __init__(self, path: str | Path) -> None:
        self._target, replaces = Path(os.path.realpath(path)), True
        with contextlib.suppress(FileNotFoundError):
            kind = Path(path).stat().st_mode
            if stat.S_ISDIR(kind):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if stat.S_ISBLK(kind):
                raise OSError(errno.EINVAL, "it is a block device, and whatever it holds would be lost")
            replaces = stat.S_ISREG(kind)
        self._fresh = ""  # what it is called until then; "": it is in its place
        if replaces:
            fd, self._fresh = tempfile.mkstemp(dir=self._target.parent, prefix=f"{self._target.name}.")
            self.file = os.fdopen(fd, "wb")
        else:
            self.file = Path(path).open("wb")  # noqa: SIM115  until it is kept

    def keep(self, mode: int | None = None) -> None:
        """All of it was written. Once. mode: permission bits of a file; None: as before, or as a new one gets."""
        self.file.flush()
        if not self._fresh:
            self.file.close()
            return
        os.fsync(self.file.fileno())
        self.file.close()
        os.chmod(self._fresh, _mode(self._target) if mode is None else mode)
        os.replace(self._fresh, self._target)
        self._fresh = ""
        sync_folder(self._target.parent)

    def close(self) -> None:
        """What was not kept goes. May be called twice."""
        with contextlib.suppress(OSError):  # of a full disk, which whoever wrote was told
            self.file.close()
        if self._fresh:
            Path(self._fresh).unlink(missing_ok=True)
            self._fresh = ""


def open_regular(path: str | Path) -> BinaryIO:
    """To be read, a file that another program has chosen: of a pipe, opening would take as long as its owner likes.

    Raises OSError, also if it is no regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


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
