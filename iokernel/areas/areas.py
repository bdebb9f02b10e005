"""Storage areas: parts of a disk that applications are given by name, and then use without us (docs/storage.md).

`Areas` decides who may do what; a store makes and opens areas: `DirectoryStore` here, `DeviceStore` in device.py.
Nothing here waits for somebody who has an area: that is refused as Busy (operations.py), and the control thread asks
again.

What opens an area is its claim: until the connection of that client ends nobody else gets it. The descriptor itself
carries a claim, too, which outlives us: an iokernel that starts anew gives no area away that a client of the old one
still uses.

Threads: any, since making and growing areas (operations.WRITING) may take minutes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...drivers.blk import file as blk_file
from ...runtime.errors import CorelaneError, Refused
from ...runtime.files import sync_folder
from ...runtime.peers import Peer, trusted
from .._native import lib
from .operations import Busy

UNIT = 4096
_MAX_UID = 2**32 - 2  # the next one, -1, means "no user" to the kernel
_NAME = re.compile(r"[A-Za-z0-9_:-][A-Za-z0-9_.:-]{0,46}\Z")


@dataclass(frozen=True, slots=True)
class Area:
    """name, owner: user id. size: bytes. offset: on its device; 0 for a file."""

    name: str
    owner: int
    size: int
    offset: int = 0


class Store(Protocol):
    """Where areas lie. Errors are CorelaneError, with errno."""

    kind: str
    for_others: bool  # whether clients that are neither root's nor our own user's may be given areas
    notes: list[str]  # what was found damaged, one sentence each, in order

    def areas(self) -> list[Area]:
        """All areas."""

    def space(self) -> tuple[int, int]:
        """Bytes in all, and bytes of the largest area that could be made now."""

    def create(self, name: str, owner: int, size: int) -> None:
        """A new area of zeros, on the disk when this returns. There is none of that name, nor is one being made."""

    def grow(self, area: Area, size: int) -> None:
        """Make it larger; what is added is zeros. Who has it open sees that when he opens it anew."""

    def delete(self, area: Area) -> None:
        """Forget it. Busy: somebody has it."""

    def open(self, area: Area) -> tuple[int, bool]:
        """A descriptor that carries the claim, and whether it ends where the area ends. Busy: somebody has it."""

    def in_use(self, area: Area) -> bool:
        """Whether a descriptor of `open` is still open somewhere."""

    def close(self) -> None:
        """Let go of the disk."""


class Areas:
    """Who may do what with the areas of a store.

    quota: bytes that the areas of one user have together; 0: half of all, and no limit for root and our own user.
    quota_areas: areas of any other user.
    """

    def __init__(self, store: Store, quota: int = 0, quota_areas: int = 64) -> None:
        self._store = store
        self._quota = quota
        self._quota_areas = quota_areas
        self._claims: set[str] = set()
        self._changes: dict[str, Area] = {}  # those that are being made, grown or deleted, with the bytes added
        self._lock = threading.Lock()  # of both

    def handle(self, op: int, name: str, size: int, owner: str, peer: Peer) -> tuple[dict[str, Any], int]:
        """Do what a client asks. Its answer, and a descriptor or -1. Raises CorelaneError to refuse it."""
        if op == lib.CL_CONTROL_AREA_LIST:
            return self._listing(peer), -1
        if not _NAME.match(name):
            raise Refused(
                f"storage area {name!r}", "a name is 1 to 47 letters, digits, '-', '_', '.', ':'", errno=errno.EINVAL
            )
        if op == lib.CL_CONTROL_AREA_CREATE:
            return self._create(name, size, owner, peer), -1
        if op == lib.CL_CONTROL_AREA_GROW:
            return self._grow(name, size, peer), -1
        if op == lib.CL_CONTROL_AREA_DELETE:
            return self._delete(name, peer), -1
        if op == lib.CL_CONTROL_AREA_OPEN:
            return self._open(name, peer)
        raise Refused("storage areas", f"there is no operation {op}", errno=errno.EPROTO)

    def release(self, name: str) -> None:
        """The client that opened it has gone. From any thread."""
        with self._lock:
            self._claims.discard(name)

    def look(self) -> None:
        """Have the store look at its areas: who has one may have made it longer than it is."""
        self._store.areas()

    def close(self) -> None:
        """Let go of the disk; areas that are open stay usable for those who have them."""
        self._store.close()

    def _tell(self, area: Area) -> dict[str, Any]:
        busy = area.name in self._claims or self._store.in_use(area)
        return {"name": area.name, "uid": area.owner, "bytes": area.size, "offset": area.offset, "in_use": busy}

    def _listing(self, peer: Peer) -> dict[str, Any]:
        mine = [a for a in sorted(self._store.areas(), key=lambda a: a.name) if _may(peer, a.owner)]
        total, free = self._store.space()
        return {
            "kind": self._store.kind,
            "capacity_bytes": total,
            "largest_bytes": free,
            "quota_bytes": self._quota_of(peer.uid),
            "areas": [self._tell(a) for a in mine],
            "notes": list(self._store.notes),
        }

    def _find(self, name: str, peer: Peer) -> Area:
        area = next((a for a in self._store.areas() if a.name == name), None)
        if area is None:
            raise Refused(f"storage area {name}", "there is none", "corelane areas lists them", errno.ENOENT)
        if not _may(peer, area.owner):
            raise Refused(f"storage area {name}", f"it is not user {peer.uid}'s", errno=errno.EACCES)
        return area

    def _check_peer(self, name: str, peer: Peer) -> None:
        if not self._store.for_others and not _may(peer, None):
            why = f"on a device user {peer.uid} would get at all areas"
            hint = (  # with all this a refusal has up to 250 bytes, and 255 is what clients keep of one
                "set storage.directory: the kernel keeps its files apart; "
                "or storage.trusted = true: all clients are trusted"
            )
            raise Refused(f"storage area {name}", why, hint, errno.EOPNOTSUPP)

    def _check_size(self, name: str, size: int, owner: int, before: int = 0) -> None:
        if size % UNIT or not size:
            why = f"{size} bytes are no multiple of {UNIT}" if size else "it would have no bytes"
            hint = f"give it a multiple of {UNIT} bytes"
            raise Refused(f"storage area {name}", why, hint, errno.EINVAL)
        if size <= before:
            why = f"it has {before} bytes already, and {size} are not more; an area only grows"
            raise Refused(f"storage area {name}", why, errno=errno.EINVAL)
        used = sum(a.size for a in self._all() if a.owner == owner) - before
        quota = self._quota_of(owner)
        if quota and used + size > quota:
            why = f"user {owner} has {used} of {quota} bytes in use besides; {size} more are too many"
            raise Refused(f"storage area {name}", why, "raise storage.quota_mib or delete one", errno.EDQUOT)

    def _all(self) -> list[Area]:
        """Areas, and what is being added to some."""
        return [*self._store.areas(), *self._changes.values()]

    def _quota_of(self, owner: int) -> int:
        return self._quota or (0 if trusted(owner) else self._store.space()[0] // 2)

    def _create(self, name: str, size: int, owner: str, peer: Peer) -> dict[str, Any]:
        self._check_peer(name, peer)
        uid = _uid(owner) if owner else peer.uid
        if uid != peer.uid and not _may(peer, None):
            raise Refused(f"storage area {name}", f"user {peer.uid} may not make one for another", errno=errno.EACCES)

        def new() -> Area:
            if any(a.name == name for a in self._store.areas()):
                raise Refused(f"storage area {name}", "it exists already", errno=errno.EEXIST)
            if not trusted(uid) and sum(a.owner == uid for a in self._all()) >= self._quota_areas:
                why = f"user {uid} has {self._quota_areas} areas already"
                raise Refused(f"storage area {name}", why, "raise storage.quota_areas or delete one", errno.EDQUOT)
            self._check_size(name, size, uid)
            return Area(name, uid, size)

        with self._changing(name, new):
            self._store.create(name, uid, size)
        return {"area": self._tell(self._find(name, peer))}

    def _grow(self, name: str, size: int, peer: Peer) -> dict[str, Any]:
        area = Area(name, 0, 0)

        def added() -> Area:
            nonlocal area
            area = self._find(name, peer)
            self._check_size(name, size, area.owner, before=area.size)
            return Area(name, area.owner, size - area.size)

        with self._changing(name, added):
            self._store.grow(area, size)
        return {"area": self._tell(Area(name, area.owner, size, area.offset))}

    def _delete(self, name: str, peer: Peer) -> dict[str, Any]:
        area = Area(name, 0, 0)

        def nothing() -> Area:
            nonlocal area
            area = self._find(name, peer)
            if name in self._claims:
                raise Refused(f"storage area {name}", "an application has it open", "end that one", errno.EBUSY)
            return Area(name, area.owner, 0)

        with self._changing(name, nothing):
            if self._store.in_use(area):
                raise Busy(f"storage area {name}", "an application has it open", "end that one", errno.EBUSY)
            self._store.delete(area)
        return {"deleted": name}

    @contextlib.contextmanager
    def _changing(self, name: str, find: Callable[[], Area]) -> Iterator[None]:
        """Nobody else opens or changes the area meanwhile, and the bytes that `find` says are its owner's. What `find`
        looks at stays so."""
        with self._lock:
            self._check_at_rest(name)
            self._changes[name] = find()
        try:
            yield
        finally:
            with self._lock:
                del self._changes[name]

    def _check_at_rest(self, name: str) -> None:
        """Under the lock."""
        if name in self._changes:
            why = "it is being made, grown or deleted"
            raise Refused(f"storage area {name}", why, "ask again when that is done", errno=errno.EBUSY)

    def _open(self, name: str, peer: Peer) -> tuple[dict[str, Any], int]:
        with self._lock:
            area = self._find(name, peer)
            self._check_peer(name, peer)
            self._check_at_rest(name)
            if name in self._claims:
                raise Refused(f"storage area {name}", "another client has it open", errno=errno.EBUSY)
            self._claims.add(name)
        try:
            fd, limited = self._store.open(area)
        except BaseException:
            self.release(name)
            raise
        return {"area": self._tell(area), "limited": limited}, fd


def _may(peer: Peer, owner: int | None) -> bool:
    """Whether a client may use what `owner` owns; None: what only root and our own user may."""
    return peer.trusted or peer.uid == owner


def _uid(owner: str) -> int:
    import pwd

    try:
        uid = int(owner) if owner.isascii() and owner.isdigit() else pwd.getpwnam(owner).pw_uid
    except (KeyError, ValueError):  # also: more digits than Python reads, and a name that cannot be one
        raise Refused("storage area", f"there is no user {owner[:40]!r}", errno=errno.EINVAL) from None
    if uid > _MAX_UID:
        raise Refused(
            "storage area", f"{uid} is no user", f"user ids are numbers from 0 to {_MAX_UID}", errno=errno.EINVAL
        )
    return uid


def _check_ours(folder: Path) -> None:
    """Raises CorelaneError for a folder that others than root and we may put something into."""
    found, us = folder.stat(), os.geteuid()
    if found.st_uid not in (0, us):
        why = f"it belongs to user {found.st_uid}, who may put there what he likes"
        hint = f"chown {us} {folder}, after a look at what is in it, or name another folder"
        raise CorelaneError(f"storage.directory {folder}", why, hint, errno.EPERM)
    if found.st_mode & 0o022:
        raise CorelaneError(f"storage.directory {folder}", "others may write in it", f"chmod 700 {folder}", errno.EPERM)


def check_below(what: str, below: blk_file.Below, why: str) -> list[str]:
    """Raises CorelaneError where `what` goes through the page cache of a loop device: of a write that failed there it
    tells one of all who use it. Notes of what is not known."""
    if below != "cached":
        return [f"{what}: {why}"] if below == "unknown" else []
    hint = "make the loop device, and each below it, with losetup --direct-io=on and the --sector-size of what is "
    hint += "below it, or give the iokernel a folder or device that is not on one"
    raise CorelaneError(what, why, hint, errno.EOPNOTSUPP)


_LINGER_S = 0.5  # what a process has open goes a moment after it was killed, and it may start again at once


def _locked_soon(fd: int) -> bool:
    """Lock what somebody who has ended may still have locked, now or in a moment. Not for the control thread's jobs."""
    deadline = time.monotonic() + _LINGER_S
    while not _lock(fd):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _lock(fd: int) -> bool:
    """Lock an opening of a file or folder against all others. False: somebody has."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_FILE = re.compile(r"(?P<name>[^@]+)@(?P<owner>\d+)\.area\Z")
_UNFINISHED = re.compile(r"[^@]+@\d+\.area\.\d+\.new\Z")


class DirectoryStore:
    """Areas as files NAME@UID.area of a folder that is ours alone; each is written with zeros when it is made.

    capacity: bytes of all areas together; 0: what the file system has. Raises CorelaneError for a folder that is
    another user's, that others may write in, or that lies on a loop device without direct I/O. A descriptor is one of
    the file, so the kernel lets its holder at nothing else. It lets him make the file longer, though, and fill the file
    system by that: what is beyond the area's end is cut off at each look at it. What is no regular file is no area: a
    symbolic link would be a way to anything. The folder is locked until `close`, since two that make, count and delete
    in it would undo each other's work.
    """

    kind = "directory"
    for_others = True

    def __init__(self, folder: str, capacity: int = 0) -> None:
        self._folder = Path(folder)
        self._capacity = capacity
        self._unfinished = 0  # bytes that are being written, and belong to no area yet
        self._lock = threading.Lock()  # of them
        self._sizes: dict[str, int] = {}  # of areas as we made them, or first saw them, by the names of their files
        self._sizing = threading.Lock()  # of these, and of cutting off what is longer
        self.notes: list[str] = []
        try:
            fresh = [path for path in (self._folder, *self._folder.parents) if not path.exists()]
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in fresh:
                sync_folder(path.parent)
            self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._failed(error) from error
        try:
            self._take()
        except OSError as error:
            self.close()
            raise self._failed(error) from error
        except BaseException:
            self.close()
            raise

    def _failed(self, error: OSError) -> CorelaneError:
        return CorelaneError(f"storage.directory {self._folder}", str(error.strerror), errno=error.errno or 0)

    def _take(self) -> None:
        """Make the folder ours alone, and look at what is in it."""
        _check_ours(self._folder)
        self.notes += check_below(f"storage.directory {self._folder}", *blk_file.below(self._folder))
        if not _locked_soon(self._fd):
            hint = "end that one, or give each a folder of its own"
            raise CorelaneError(f"storage.directory {self._folder}", "another iokernel has it", hint, errno.EBUSY)
        for path in self._folder.iterdir():
            if _UNFINISHED.match(path.name):  # we died while we made it
                path.unlink()
            elif _FILE.match(path.name) and not stat.S_ISREG(path.stat(follow_symlinks=False).st_mode):
                self.notes.append(f"{path} is no regular file, and so no area")
        self._seen()  # sizes as they are before anybody has one of them from us

    def _path(self, area: Area) -> Path:
        return self._folder / f"{area.name}@{area.owner}.area"

    def areas(self) -> list[Area]:
        return [area for area, _ in self._seen()]

    def _seen(self) -> list[tuple[Area, int]]:
        """All areas, and bytes of the disk that they take."""
        out = []
        for path in self._folder.iterdir():
            match = _FILE.match(path.name)
            if match is None:
                continue
            with contextlib.suppress(FileNotFoundError):  # it has just been deleted
                found = path.stat(follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    size = self._cut(path, found.st_size)
                    taken = min(size, found.st_blocks * 512)
                    out.append((Area(match["name"], int(match["owner"]), size), taken))
        return out

    def _cut(self, path: Path, size: int) -> int:
        """The size of an area whose file has that one; what is beyond it is given back to the file system."""
        with self._sizing:
            known = self._sizes.setdefault(path.name, size)
            if size > known:
                os.truncate(path, known)
            return min(size, known)

    def _set_size(self, area: Area, size: int | None) -> None:
        """From now on nothing is cut off that is within it. None: the area is gone."""
        with self._sizing:
            if size is None:
                self._sizes.pop(self._path(area).name, None)
            else:
                self._sizes[self._path(area).name] = size

    def space(self) -> tuple[int, int]:
        used = sum(taken for _, taken in self._seen())
        at = os.statvfs(self._folder)  # when what is beyond areas has been given back
        free = at.f_bavail * at.f_frsize
        total = self._capacity or used + free
        # What is being written has its blocks, so that the file system does not call them free any more.
        left = total - used - self._unfinished if self._capacity else free
        return total, max(0, min(free, left)) // UNIT * UNIT

    @contextlib.contextmanager
    def _writing(self, name: str, more: int) -> Iterator[None]:
        """So many bytes more are taken while they are being written. Raises Refused if there are not."""
        with self._lock:
            free = self.space()[1]
            if more > free:
                raise Refused(f"storage area {name}", f"{more} bytes are wanted, {free} are free", errno=errno.ENOSPC)
            self._unfinished += more
        try:
            yield
        finally:
            with self._lock:
                self._unfinished -= more

    def create(self, name: str, owner: int, size: int) -> None:
        area = Area(name, owner, size)
        with self._writing(name, size):
            self._set_size(area, size)
            try:
                blk_file.create(self._path(area), size)
            except BaseException:
                self._set_size(area, None)
                raise

    def grow(self, area: Area, size: int) -> None:
        with self._writing(area.name, size - area.size):
            self._set_size(area, size)
            try:
                blk_file.grow(self._path(area), size)
            except BaseException:
                self._set_size(area, area.size)
                raise

    def delete(self, area: Area) -> None:
        fd = self._open_file(area)
        try:
            if not _lock(fd):
                raise self._busy(area)
            self._path(area).unlink()
            self._set_size(area, None)
            sync_folder(self._folder)
        finally:
            os.close(fd)

    def _busy(self, area: Area) -> Busy:
        return Busy(f"storage area {area.name}", "another process has it open", errno=errno.EBUSY)

    def _open_file(self, area: Area) -> int:
        """Raises Refused for what has taken the file's place and is none."""
        path = self._path(area)
        refused = Refused(f"storage area {area.name}", f"{path} is no regular file", errno=errno.EPERM)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR):
                raise refused from None
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise refused
        return fd

    def open(self, area: Area) -> tuple[int, bool]:
        fd = self._open_file(area)
        try:
            if not _lock(fd):  # goes with the descriptor to whom it is given
                raise self._busy(area)
        except BaseException:
            os.close(fd)
            raise
        return fd, True

    def in_use(self, area: Area) -> bool:
        try:
            fd = self._open_file(area)
        except FileNotFoundError:  # it has just been deleted
            return False
        try:
            return not _lock(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
