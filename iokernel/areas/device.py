"""Areas as parts of a raw device, each one extent, in the table of table.py.

An application gets a loop device that ends where its area ends. That guards against its mistakes, and not against
itself: whoever may write to a loop device may also move and enlarge it, without a capability (LOOP_SET_STATUS64 of
drivers/block/loop.c; tests/drivers/blk/test_file.py does it), and then has the whole device. So other users than root
and our own are given areas only if the configuration calls all clients trusted. Where there are no loop devices (loop
is not in this kernel, or we are not root) nobody is given one, unless clients are trusted: they then get the whole
device, and are told which part of it is theirs.

With either descriptor goes the claim, a lock on the area's part of the device. A loop device keeps the opening of the
device that it was made of, and so the lock, for as long as there is one, wherever it is moved to.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from ...drivers.blk import loop as blk_loop
from ...drivers.blk.blk import Blk, BlkError
from ...runtime.errors import CorelaneError, Refused
from . import table as areas_table
from .areas import UNIT, Area, check_below
from .operations import Busy

_FLOCK = "hhqqi"  # struct flock: type, whence, start, length, pid
_ZEROS = bytes(1 << 20)


def _part(area: Area) -> bytes:
    return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, area.offset, area.size, 0)


def _claim(fd: int, area: Area) -> bool:
    """Lock the area's part of the device, by the opening that fd is of: whoever is given fd holds the lock, and a new
    iokernel meets it. False: somebody else has it."""
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _part(area))
    except BlockingIOError:
        return False
    return True


def _claimed(path: str, area: Area) -> bool:
    """Whether somebody has locked the area's part of the device, or some of it."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # one for writing would have udev look at the device when it closes
    try:
        found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _part(area))
    finally:
        os.close(fd)
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)


def gaps(areas: list[Area], end: int) -> list[tuple[int, int]]:
    """(offset, bytes) of what is free between areas_table.DATA_OFFSET and `end`."""
    out, at = [], areas_table.DATA_OFFSET
    for area in sorted(areas, key=lambda a: a.offset):
        if area.offset > at:
            out.append((at, area.offset - at))
        at = max(at, area.offset + area.size)
    if end > at:
        out.append((at, end - at))
    return out


class DeviceStore:
    """A store on `blk`, which then is ours; `path` is the device that loop devices are made of.

    trusted: clients of all users are trusted with all of the device. tell: is given each note when it comes up.
    notes: of what is known of the device already.

    Raises CorelaneError if the device holds something else than areas, or its table is damaged so that it cannot be
    known what it holds.
    """

    kind = "device"

    def __init__(
        self,
        blk: Blk,
        path: str,
        *,
        trusted: bool = False,
        tell: Callable[[str], object] | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        self._blk = blk
        self._path = path
        self.for_others = self._trusted = trusted
        self._tell = tell
        self.notes: list[str] = []
        self._table, found = areas_table.prepare(blk)
        self._end = blk.size_bytes // UNIT * UNIT
        self._unfinished: list[Area] = []  # parts that are being overwritten with zeros, and belong to no area yet
        self._lock = threading.Lock()  # of them and of the table, whose pieces go through queue 0
        self._zeroing = threading.Lock()  # of the last queue
        self._failed = ""
        self._note(*notes, *found)

    def _note(self, *notes: str) -> None:
        for note in notes:
            self.notes.append(note)
            if self._tell is not None:
                self._tell(note)

    def areas(self) -> list[Area]:
        return list(self._table.areas)

    def space(self) -> tuple[int, int]:
        return max(0, self._end - areas_table.DATA_OFFSET), max((n for _, n in self._gaps()), default=0)

    def _gaps(self) -> list[tuple[int, int]]:
        return gaps([*self._table.areas, *self._unfinished], self._end)

    def _change(self, areas: list[Area]) -> None:
        """Under the lock."""
        if self._failed:
            raise CorelaneError("storage", self._failed, "restart the iokernel: it reads what is there", errno.EIO)
        try:
            self._table, notes = areas_table.store(self._blk, self._table, areas)
        except BlkError as error:
            self._failed = f"the table of areas could not be written ({error})"
            # What is perhaps deleted is given to nobody, who would lose what he writes there.
            names = {a.name for a in areas}
            self._table = replace(self._table, areas=tuple(a for a in self._table.areas if a.name in names))
            self._note(f"{self._failed}: nothing is changed any more; restart the iokernel")
            raise
        self._note(*notes)

    @contextlib.contextmanager
    def _zeroed(self, find: Callable[[], Area]) -> Iterator[Area]:
        """Overwrite the part that `find` chooses, since what was there before was somebody else's; nobody else gets it
        meanwhile. The block is entered with the lock, to make it an area's."""
        with self._lock:
            part = find()
            self._unfinished.append(part)
        try:
            end, queue = part.offset + part.size, self._blk.queues - 1
            for at in range(part.offset, end, len(_ZEROS)):
                with self._zeroing if queue else self._lock:
                    self._blk.write(at, _ZEROS[: min(len(_ZEROS), end - at)], queue)
            with self._zeroing if queue else self._lock:
                self._blk.flush(queue)
        except BaseException:
            with self._lock:
                self._unfinished.remove(part)
            raise
        with self._lock:
            self._unfinished.remove(part)
            yield part

    def create(self, name: str, owner: int, size: int) -> None:
        def tightest() -> Area:
            fitting = [(n, offset) for offset, n in self._gaps() if n >= size]
            if not fitting:
                why = f"{size} bytes are wanted, and the largest piece free has {self.space()[1]}"
                raise Refused(f"storage area {name}", why, errno=errno.ENOSPC)
            return Area(name, owner, size, min(fitting)[1])

        with self._zeroed(tightest) as area:
            self._change([*self._table.areas, area])

    def grow(self, area: Area, size: int) -> None:
        end, more = area.offset + area.size, size - area.size

        def behind() -> Area:
            free = next((n for offset, n in self._gaps() if offset == end), 0)
            if more > free:
                why = f"{more} bytes more are wanted, and behind it {free} are free"
                raise Refused(f"storage area {area.name}", why, "make a larger one and copy", errno.ENOSPC)
            return Area(area.name, area.owner, more, end)

        with self._zeroed(behind):
            grown = Area(area.name, area.owner, size, area.offset)
            self._change([grown if a.name == area.name else a for a in self._table.areas])

    def delete(self, area: Area) -> None:
        with self._lock:
            self._change([a for a in self._table.areas if a.name != area.name])

    def _busy(self, area: Area) -> Busy:
        where = f"it lies at offset {area.offset} of {self._path}"
        return Busy(f"storage area {area.name}", "another process has it open", where, errno.EBUSY)

    def open(self, area: Area) -> tuple[int, bool]:
        if self.in_use(area):
            raise self._busy(area)
        why = blk_loop.missing()
        if why and not self._trusted:
            hint = "set storage.trusted = true if its applications may be trusted with the whole device"
            raise Refused(f"storage area {area.name}", f"nothing here limits it to its part: {why}", hint, errno.EPERM)
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if not _claim(fd, area):
                raise self._busy(area)
            if why:
                return os.dup(fd), False
            return blk_loop.attach(fd, area.offset, area.size, self._blk.atomic_bytes)[0], True
        finally:
            os.close(fd)

    def in_use(self, area: Area) -> bool:
        # An area that an iokernel older than the locks of loop devices gave away has none.
        return _claimed(self._path, area) or area.offset in blk_loop.parts(self._path)

    def close(self) -> None:
        self._blk.close()


def open_device(path: str, *, trusted: bool = False, tell: Callable[[str], object] | None = None) -> DeviceStore:
    """The store of a raw device, or of a file in its place. Raises CorelaneError, in use: mounted or claimed, too; and
    for a device that goes through a page cache: of a write that failed there it tells one of all who use it."""
    from ...drivers.blk.file import FileBlk

    blk = FileBlk(Path(path), queues=2)  # one for the table, one for zeros
    try:
        what, info = f"storage.device {path}", blk.info()
        notes = check_below(what, info.below, info.why)
        if info.raw and not info.direct:
            hint = "give the iokernel another device, or set storage.directory to a folder that is not on this one"
            raise CorelaneError(what, info.why, hint, errno.EOPNOTSUPP)
        return DeviceStore(blk, os.path.realpath(path), trusted=trusted, tell=tell, notes=notes)
    except BaseException:
        blk.close()
        raise
