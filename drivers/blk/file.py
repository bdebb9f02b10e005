"""Files and raw block devices as block devices (corelane/drivers/blk_file.h): opening, creating and growing them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ...runtime.errors import CorelaneError
from ...runtime.options import Group, option
from ...runtime.typed import typed
from .._native import ffi, lib
from ..device import check
from .blk import Blk

_ENGINES = {
    "auto": lib.CL_BLK_ENGINE_AUTO,
    "uring": lib.CL_BLK_ENGINE_URING,
    "threads": lib.CL_BLK_ENGINE_THREADS,
}
_DIRECT = {None: lib.CL_BLK_DIRECT_AUTO, True: lib.CL_BLK_DIRECT_ONLY, False: lib.CL_BLK_DIRECT_NEVER}

Below = Literal["direct", "unknown", "cached"]
_BELOW: dict[int, Below] = {
    lib.CL_BLK_BELOW_DIRECT: "direct",
    lib.CL_BLK_BELOW_UNKNOWN: "unknown",
    lib.CL_BLK_BELOW_CACHED: "cached",
}


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What came of opening a file.

    engine: "uring" or "threads". direct: O_DIRECT. dsync: durable writes carry RWF_DSYNC, else an fdatasync follows.
    raw: a block device, not a file. holes: the file has blocks that were never written. below: as the function `below`
    says it. why: what was refused, and why; empty if nothing was.
    """

    engine: str
    direct: bool
    dsync: bool
    sqpoll: bool
    raw: bool
    holes: bool
    below: Below
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIo(Group):
    """How requests are carried out.

    engine: "auto", "uring" or "threads". threads: of the engine of that name, a queue; 0: 4. direct: None for O_DIRECT
    where it is to be had, True: or fail, False: through the page cache, by worker threads. no_dsync: durable writes are
    followed by an fdatasync, as where RWF_DSYNC is not to be had.
    """

    engine: str = option("auto", "who carries them out", choices=tuple(_ENGINES))
    threads: int = option(0, "worker threads", low=0, high=64)
    direct: bool | None = option(None, "past the page cache")
    no_dsync: bool = option(False, "without RWF_DSYNC")


class FileBlk(Blk):
    """A file or raw block device.

    path: of an existing file (see `create`) or block device; or an open descriptor, which is then the device's. sqpoll:
    a kernel thread looks for submissions, where the kernel allows it. part: (offset, bytes) of it only. io: how
    requests are carried out. The rest is explained in corelane/drivers/blk_file.h. Raises CorelaneError saying why it
    cannot be opened.
    """

    @typed("open a block device")
    def __init__(
        self,
        path: str | os.PathLike[str] | int,
        *,
        queues: int = 1,
        depth: int = 0,
        block_bytes: int = 0,
        sqpoll: bool = False,
        shared: bool = False,
        read_only: bool = False,
        part: tuple[int, int] = (0, 0),
        io: FileIo | None = None,
    ) -> None:
        config, out, err = ffi.new("struct cl_blk_file_config *"), ffi.new("struct cl_blk **"), ffi.new("char[256]")
        name = ffi.NULL if isinstance(path, int) else ffi.new("char[]", os.fsencode(path))
        config.path, config.fd = name, path if isinstance(path, int) else -1
        config.queues, config.depth, config.block_bytes = queues, depth, block_bytes
        config.sqpoll, config.shared, config.read_only = sqpoll, shared, read_only
        io = io or FileIo()
        config.engine, config.threads = _ENGINES[io.engine], io.threads
        config.direct, config.no_dsync = _DIRECT[io.direct], io.no_dsync
        config.part_offset, config.part_bytes = part
        what = f"open descriptor {path}" if isinstance(path, int) else f"open {os.fspath(path)}"
        check(lib.cl_blk_file_open(config, out, err), err, what)
        super().__init__(out[0])

    def info(self) -> FileInfo:
        """How it was opened."""
        c = ffi.new("struct cl_blk_file_info *")
        lib.cl_blk_file_info(self.ptr, c)
        engine = "uring" if c.engine == lib.CL_BLK_ENGINE_URING else "threads"
        return FileInfo(
            engine,
            direct=bool(c.direct),
            dsync=bool(c.dsync),
            sqpoll=bool(c.sqpoll),
            raw=bool(c.raw),
            holes=bool(c.holes),
            below=_BELOW[c.below],
            why=ffi.string(c.why).decode(errors="replace"),
        )


def below(path: str | os.PathLike[str]) -> tuple[Below, str]:
    """Whether what is written past the page cache to a file, folder or device goes through that of a loop device below
    it, and why that is so; "" if it is direct. Raises CorelaneError."""
    why = ffi.new("char[256]")
    rc = lib.cl_blk_file_below(os.fsencode(path), why)
    said = ffi.string(why).decode(errors="replace")
    if rc < 0:
        raise CorelaneError(said, errno=-rc)
    return _BELOW[rc], said


def _check_size(path: str | os.PathLike[str], size: int) -> None:
    if not 0 < size < 1 << 63:
        raise CorelaneError(f"give {os.fspath(path)} a size", f"no file is {size} bytes long", "", errno.EINVAL)


@typed("create a file for a block device")
def create(path: str | os.PathLike[str], size: int, progress: Callable[[int, int], object] | None = None) -> None:
    """A new file of zeros that are on the disk; it has its name only once it is whole.

    size: a multiple of 4096 bytes. progress: called with the bytes done and the bytes to do; what it raises ends it.
    Raises CorelaneError: it exists, there is no space...
    """
    _check_size(path, size)
    raised: list[BaseException] = []

    def report(_arg: Any, done: int, of: int) -> int:
        try:
            if progress:
                progress(done, of)
        except BaseException as error:
            raised.append(error)
        return len(raised)

    callback = ffi.callback("int(void *, uint64_t, uint64_t)", report)
    err = ffi.new("char[256]")
    rc = lib.cl_blk_file_create(os.fsencode(path), size, callback, ffi.NULL, err)
    if raised:
        raise raised[0]
    if rc < 0:
        raise CorelaneError(ffi.string(err).decode(errors="replace"), errno=-rc)


@typed("grow a file of a block device")
def grow(path: str | os.PathLike[str], size: int) -> None:
    """Make a file larger by zeros that are on the disk. Raises CorelaneError; it then has its old size."""
    _check_size(path, size)
    err = ffi.new("char[256]")
    rc = lib.cl_blk_file_grow(os.fsencode(path), size, err)
    if rc < 0:
        raise CorelaneError(ffi.string(err).decode(errors="replace"), errno=-rc)
