"""The persistent log from Python (corelane/libos/log.h): open, append, read, trim, and the report of what recovery
found.

    from corelane.libos.storage.log.log import Log
    Log.create("events.log", 64 << 20)
    with Log.open("events.log") as log:
        index = log.append(b"first")          # durable when it returns
        for record in log.records(log.first_index):
            print(record.index, record.data)

One thread at a time is inside a log; calls take a lock, and block their own thread only. Threads that append at
the same time share flushes (group.py). A log belongs to the process that opened it: in the child of a fork its
calls raise CorelaneError, and closing it there does nothing. While it is shared with a runtime (shared.py) only the
numbers can be read here: first_index, durable_index, free_bytes, stats; all else raises CorelaneError (EBUSY).
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Literal, Self

from ....drivers.blk import file as blk_file
from ....drivers.blk.area import AreaBlk
from ....drivers.blk.blk import Blk, BlkError
from ....runtime.closing import Closing
from ....runtime.errors import CorelaneError, check
from ....runtime.paths import default_socket
from ....runtime.typed import typed
from ..._native import ffi, lib
from .cut import SUPERBLOCKS_BYTES, refuse_cut
from .group import Batch, Group, Submit, operation
from .promise import Promises
from .report import LogReport, Record, Snapshot, report_of

_ON_DAMAGE = {"refuse": lib.CL_LOG_REFUSE, "cut": lib.CL_LOG_CUT, "read-only": lib.CL_LOG_READ_ONLY}
_SCAN_BYTES = 1 << 20
_DAMAGED_HINT = "see `corelane log check`; opening it with on_damage='cut' gives up what follows"


class LogDamaged(CorelaneError):
    """The log has damage before its end; `report` says where. It was not opened and not changed."""

    report: LogReport


_opened: weakref.WeakSet[Log] = weakref.WeakSet()


def _after_fork() -> None:
    for log in list(_opened):
        log.after_fork()


os.register_at_fork(after_in_child=_after_fork)


def format_area(blk: Blk, *, snapshot_bytes: int = 0, flush_bytes: int = 0, area_id: int = 0, queue: int = 0) -> None:
    """Make an empty log of a block device. What was there is lost. Raises CorelaneError saying why it cannot be."""
    if not 0 <= snapshot_bytes < 1 << 63:
        raise CorelaneError("make a log", f"no snapshot is {snapshot_bytes} bytes long", "", errno.EINVAL)
    layout = ffi.new("struct cl_log_layout *")
    layout.area_id, layout.snapshot_bytes, layout.flush_bytes = area_id, snapshot_bytes, flush_bytes
    err = ffi.new("char[256]")
    check(lib.cl_log_format(blk.ptr, queue, layout, err), "make a log", err)


def _check_index(what: str, index: int, most: int = lib.CL_LOG_INDEX_MOST + 1) -> None:
    """most: the one behind the last record is an index, too, of who trims, truncates and reads."""
    if not 0 <= index <= most:
        raise CorelaneError(what, f"indexes go from 1 to {lib.CL_LOG_INDEX_MOST}", "", errno.ERANGE)


def is_device(path: str | os.PathLike[str]) -> bool:
    """Whether there is a block device of that name."""
    try:
        return stat.S_ISBLK(os.stat(path).st_mode)
    except OSError:
        return False


@typed("format a device for logs")
def format_device(
    path: str | os.PathLike[str], *, snapshots: int = 0, snapshot_bytes: int = 0, force: bool = False
) -> int:
    """Make an empty log of a block device that nobody has open; its bytes.

    snapshots: room for one, as a part of the device: 4 for a quarter; or snapshot_bytes. One that is not zero at its
    beginning, where logs, file systems and tables of partitions have their superblocks, is refused but by force: what
    it holds is lost then. Raises CorelaneError.
    """
    with blk_file.FileBlk(path) as blk:
        size = blk.size_bytes
        head = blk.read(0, min(_SCAN_BYTES, size // 4096 * 4096))
        if not force and (left := len(head.lstrip(b"\0"))):
            at = (len(head) - left) // 4096 * 4096
            why = f"the block at offset {at} is not zero: it holds a log, or something else"
            raise CorelaneError(f"make a log of {path}", why, "force it if that is not needed", errno.EEXIST)
        format_area(blk, snapshot_bytes=size // snapshots & ~4095 if snapshots else snapshot_bytes)
        return size


def format_if_new(blk: Blk, *, snapshot_bytes: int = 0) -> bool:
    """Make an empty log of a device that was never formatted; whether it was so. Opening judges all others.

    New is a device that is zero throughout, as an area is when it is made: making a log writes one sector, so a crash
    leaves zeros or a log. Zeros in the superblocks alone are what damage may leave of a log, and are refused with a
    CorelaneError that says at which offset there is more.
    """
    try:
        if any(blk.read(0, SUPERBLOCKS_BYTES)):
            return False
    except BlkError as error:
        if error.errno == errno.EIO:  # opening says what cannot be read, and does with one of them
            return False
        raise
    for at in range(SUPERBLOCKS_BYTES, blk.size_bytes, _SCAN_BYTES):
        piece = blk.read(at, min(_SCAN_BYTES, blk.size_bytes - at))
        if left := len(piece.lstrip(b"\0")):
            block = (at + len(piece) - left) // 4096 * 4096
            raise CorelaneError(
                "open the log",
                f"its superblocks, at offsets 0 and 4096, are zero, and the block at offset {block} is not",
                "it is no new area: it has lost its superblocks, or holds something else",
                errno.EBADMSG,
            )
    format_area(blk, snapshot_bytes=snapshot_bytes)
    return True


class Log(Closing):
    """An open log. `report` is what opening found. Made by `open` of a file, `open_area`, or of a device of yours."""

    _ptr: Any

    @typed("open a log")
    def __init__(
        self,
        blk: Blk,
        *,
        on_damage: Literal["refuse", "cut", "read-only"] = "refuse",
        queue: int = 0,
        in_flight: int = 0,
        owned: bool = False,
        name: str = "",
    ) -> None:
        """owned: close the device with the log. name: of the log, for errors.

        Raises LogDamaged, or CorelaneError saying why it cannot be opened.
        """
        self._blk, self._owned = blk, owned
        self._asked: deque[Any] = deque()  # the log has pointers to these until they are done, whoever stops waiting
        self._unused: deque[Any] = deque()  # cursors that are to be closed
        self._begin("it is closed", "open it again")
        config, out = ffi.new("struct cl_log_config *"), ffi.new("struct cl_log **")
        report, err = ffi.new("struct cl_log_report *"), ffi.new("char[256]")
        config.blk, config.queue, config.on_damage, config.in_flight = blk.ptr, queue, _ON_DAMAGE[on_damage], in_flight
        rc = lib.cl_log_open_wait(config, out, report, err)
        self.report = report_of(report)
        if rc and self.report.tail == "damaged":
            error = LogDamaged(f"open the log {name}".rstrip(), self.report.why, _DAMAGED_HINT, -rc)
            error.report = self.report
            raise error
        check(rc, f"open the log {name}".rstrip(), err)
        self._ptr = out[0]
        _opened.add(self)

    def _begin(self, why: str, hint: str) -> None:
        """Without a log so far; why: what is said as long as there is none."""
        self._ptr = None
        self._none = why, hint
        self._lent = False  # a runtime's uthreads have it; under the lock
        self._lock = threading.Lock()  # of who is inside the log, and may wait there for the device
        self._looks = threading.Lock()  # of who only reads numbers: the log is not closed under them
        self._saves, self._saving = threading.RLock(), False  # who saves a snapshot
        self._group = Group(self._lock, self._take, self._pump)
        self._promises = Promises(self._group, lambda batch: self._indexes(batch)[0])

    def after_fork(self) -> None:
        """In the child: the device's queue is the parent's, and its threads and what they had locked are not here."""
        self._begin("the process that forked this one has it open", "use it there")

    @staticmethod
    @typed("make a log")
    def create(path: str | os.PathLike[str], size: int, *, snapshot_bytes: int = 0) -> None:
        """Make a new file of `size` bytes (a multiple of 4096) with an empty log. Of a device: `format_device`."""
        if is_device(path):
            raise CorelaneError(f"make the log {path}", "it is a block device", "use format_device")
        blk_file.create(path, size)
        try:
            with blk_file.FileBlk(path) as blk:
                format_area(blk, snapshot_bytes=snapshot_bytes)
        except BaseException:
            os.unlink(path)  # a file of zeros, which is no log and in the way of the next attempt
            raise

    @classmethod
    @typed("open a log")
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        on_damage: Literal["refuse", "cut", "read-only"] = "refuse",
        sqpoll: bool = False,
    ) -> Self:
        """Open the log in a file or block device, which is locked against others meanwhile.

        on_damage: "read-only" to look at it, also without the right to write the file. sqpoll: a kernel thread looks
        for what is to be written, at the price of a core while there is something; where the kernel refuses it the log
        does without.
        """
        refuse_cut(path)
        blk = blk_file.FileBlk(path, sqpoll=sqpoll, read_only=on_damage == "read-only")
        try:
            return cls(blk, on_damage=on_damage, owned=True, name=os.fspath(path))
        except BaseException:
            blk.close()
            raise

    @classmethod
    @typed("open a log")
    def open_area(
        cls,
        name: str,
        socket: str | None = None,
        *,
        snapshot_bytes: int = 0,
        on_damage: Literal["refuse", "cut", "read-only"] = "refuse",
        sqpoll: bool = False,
    ) -> Self:
        """Open the log in a storage area of the iokernel on `socket` (None: the user's own), ours until it is closed.

        A new area is given an empty log with room for a snapshot of snapshot_bytes, unless it is opened to be read.
        sqpoll: as in `open`.
        """
        blk = AreaBlk(socket or default_socket(), name, sqpoll=sqpoll)
        try:
            if on_damage != "read-only":
                format_if_new(blk, snapshot_bytes=snapshot_bytes)
            return cls(blk, on_damage=on_damage, owned=True, name=f"in storage area {name}")
        except BaseException:
            blk.close()
            raise

    def close(self) -> None:
        """Finish what is in flight, until all futures are done, and write down that all is well.

        A second call does nothing. Raises CorelaneError, and it stays open, while it is shared with a runtime.
        """
        self._refuse_lent("close the log")
        self._promises.close()
        with self._lock:
            self._refuse_lent("close the log")
            with self._looks:
                ptr, self._ptr = self._ptr, None
            if ptr is None:
                return
            err = ffi.new("char[256]")
            rc = lib.cl_log_close(ptr, err)
            if self._owned:
                self._blk.close()
            check(rc, "close the log", err)

    def _lend(self, share: Callable[[Any], object]) -> None:
        """Give it to uthreads by share(log), with nothing in flight; `_take_back` ends that."""
        with self._lock:
            log = self._open
            self._finish()
            share(log)
            self._lent = True

    def _take_back(self) -> None:
        with self._lock:
            self._lent = False

    def _settle(self) -> None:
        """Until nothing is in flight, if it is open."""
        with self._lock:
            self._finish()

    def _finish(self) -> None:
        while self._ptr is not None and lib.cl_log_busy(self._ptr):
            self._pump()

    def _refuse_lent(self, what: str) -> None:
        if self._lent:
            hint = "stop that first; until then its uthreads append, and its numbers can be read"
            raise CorelaneError(what, "it is shared with a runtime", hint, errno.EBUSY)

    @property
    def first_index(self) -> int:
        """Index of the first record that is kept."""
        return int(self._look(lib.cl_log_first_index))

    @property
    def durable_index(self) -> int:
        """Index of the last durable record; first_index - 1 if there is none."""
        return int(self._look(lib.cl_log_durable_index))

    @property
    def free_bytes(self) -> int:
        """Room left for records, with their headers and padding."""
        return int(self._look(lib.cl_log_free_bytes))

    def usage(self) -> dict[str, int]:
        """Bytes of the ring: ring_bytes is the sum of kept_bytes (records), dead_bytes, free_bytes, reserved_bytes."""
        c = ffi.new("struct cl_log_usage *")
        self._look(lib.cl_log_usage, c)
        return {name: int(getattr(c, name)) for name, _ in ffi.typeof("struct cl_log_usage").fields}

    def stats(self) -> dict[str, int]:
        """Counters of struct cl_log_stats. registered: bytes of buffers the device knows, or why not, as a -errno."""
        c = ffi.new("struct cl_log_stats *")
        self._look(lib.cl_log_stats, c)
        return {name: int(getattr(c, name)) for name, _ in ffi.typeof("struct cl_log_stats").fields}

    def _look(self, call: Callable[..., Any], *args: Any) -> Any:
        """call(log, ...), which only reads, beside appends that wait for the device and a close on another thread."""
        with self._looks:
            if self._ptr is None:
                raise CorelaneError("use the log", *self._none)
            return call(self._ptr, *args)

    @property
    def _open(self) -> Any:
        """With the lock."""
        self._refuse_lent("use the log")
        if self._ptr is None:
            raise CorelaneError("use the log", *self._none)
        return self._ptr

    def _op(self, data: bytes = b"") -> tuple[Any, Any]:
        op, held = operation(data)
        self._keep(op)
        return op, held

    def _keep(self, op: Any) -> None:
        while self._asked and self._asked[0].result != lib.CL_LOG_PENDING:
            self._asked.popleft()
        self._asked.append(op)

    def _wait(self, op: Any, rc: int, what: str) -> None:
        log = self._open
        check(rc, what, self._refusal(rc))
        rc = lib.cl_log_wait(log, op)
        check(rc, what, ffi.string(lib.cl_log_why(log)).decode())

    def _refusal(self, rc: int) -> str | None:
        """Why the log did not take something, where that can be said better than by the error's number."""
        if not rc:
            return None
        if rc == -errno.ENOSPC:
            return "the area is full: trim it"
        if rc == -errno.EMSGSIZE:
            most = self._look(lib.cl_log_max_bytes)
            return f"a record of this log has {most} bytes at most, and the meta blob {lib.CL_LOG_META_BYTES}"
        if rc == -errno.ERANGE:
            return self._kept()
        if rc == -errno.EOVERFLOW:
            return "no index is left for another record"
        return self._why() or None

    def _kept(self) -> str:
        """Which records there are, for who asked for others."""
        first, last = self.first_index, self.durable_index
        return f"it keeps the records {first} to {last}" if first <= last else f"it keeps none: the next is {first}"

    def _in_turn(self, what: str, submit: Submit, data: bytes = b"") -> None:
        """Have the log do something behind all that was asked for before, until it is durable."""
        asked = operation(data)
        batch = Batch([asked], submit)
        self._group.append(batch)
        check(batch.rc, what, self._refusal(batch.rc))
        check(asked[0].result, what, self._why() if asked[0].result else None)

    def append(self, data: bytes, *, tag: int = 0, kind: int = 0) -> int:
        """Append a record; returns its index when it is durable."""
        asked = operation(data, tag, kind)
        rc = self._group.append_alone(asked)
        if rc is None:
            return self._append([asked])[0]
        if rc or asked[0].result:
            self._ended(rc, asked[0].result)
        return int(asked[0].index)

    def append_async(self, data: bytes, *, tag: int = 0, kind: int = 0) -> Future[int]:
        """Append a record, later than those asked for before; the future is of its index, done when it is durable.

        `data` may not be changed before that. The future has the error if it is not durable: CorelaneError, as `append`
        raises it. It cannot be cancelled. Its callbacks run on a thread of the log's, which keeps the other futures
        waiting meanwhile; `asyncio.wrap_future` gives what an event loop awaits. There is no limit to how many
        are asked for at one time but memory. `close` waits for all of them.
        """
        return self._promises.add(Batch([operation(data, tag, kind)]))

    def extend(self, datas: Sequence[bytes], *, tag: int = 0, kind: int = 0) -> list[int]:
        """Append records, as few flushes as they fit; their indexes when all are durable."""
        return self._append([operation(data, tag, kind) for data in datas])

    def _append(self, asked: list[tuple[Any, Any]]) -> list[int]:
        batch = Batch(asked)
        self._group.append(batch)
        return self._indexes(batch)

    def _indexes(self, batch: Batch) -> list[int]:
        """Of a batch that is done; or raise why it is not durable."""
        if batch.error:
            raise batch.error
        for op, _ in batch.asked[: batch.taken]:
            self._ended(0, op.result)
        self._ended(batch.rc, 0)
        return [int(op.index) for op, _ in batch.asked]

    def _ended(self, refused: int, result: int) -> None:
        check(refused, "append to the log", self._refusal(refused))
        check(result, "append to the log", self._why() if result else None)

    def _take(self, op: Any, submit: Submit) -> int:
        """Give one of a batch to the log."""
        self._keep(op)
        rc = int(submit(self._open, op))
        if rc:
            self._asked.pop()
        return rc

    def _why(self) -> str | None:
        """Why the log failed, if it did."""
        with self._looks:
            return ffi.string(lib.cl_log_why(self._ptr)).decode() if self._ptr is not None else None

    def truncate(self, first_gone: int) -> None:
        """Give up the records from there on; the next append gets that index."""
        _check_index(f"truncate the log from {first_gone}", first_gone)
        self._in_turn(f"truncate the log from {first_gone}", lambda log, op: lib.cl_log_truncate(log, first_gone, op))

    def restart(self, index: int) -> None:
        """Give up all records; the next append gets `index`."""
        _check_index(f"restart the log at {index}", index, lib.CL_LOG_INDEX_MOST)
        self._in_turn(f"restart the log at {index}", lambda log, op: lib.cl_log_restart(log, index, op))

    def trim(self, first_kept: int) -> None:
        """Free the space of the records before first_kept."""
        _check_index(f"trim the log to {first_kept}", first_kept)
        with self._lock:
            op, _held = self._op()
            self._wait(op, lib.cl_log_trim(self._open, first_kept, op), f"trim the log to {first_kept}")

    def set_meta(self, data: bytes) -> None:
        """Replace the small blob that survives trims and truncations (256 bytes at most)."""
        self._in_turn("set the log's meta blob", lib.cl_log_meta_set, data)

    def meta(self) -> bytes:
        """The blob; empty if none was ever set."""
        buf = ffi.new("char[]", lib.CL_LOG_META_BYTES)
        with self._lock:
            return bytes(ffi.buffer(buf, lib.cl_log_meta_get(self._open, buf)))

    def records(self, first: int | None = None) -> Iterator[Record]:
        """The durable records from `first` (first_index) on. CorelaneError naming the offset if one is damaged.

        And with ERANGE if there is no record `first`, nor will it be the next one; ESTALE if it is trimmed or truncated
        while it is read.
        """
        out, c = ffi.new("struct cl_log_cursor **"), ffi.new("struct cl_log_record *")
        index = self.first_index if first is None else first
        what = f"read the log from index {index}"
        _check_index(what, index)
        with self._lock:
            self._close_unused()
            rc = lib.cl_log_cursor_open(self._open, index, out)
            rc = -errno.ERANGE if rc == -errno.ENOENT else rc  # as of the other calls: nobody asked for a file
            check(rc, what, self._refusal(rc))
        try:
            while record := self._next(out[0], c):
                yield record
        finally:
            self._unused.append(out[0])
            if self._lock.acquire(blocking=False):  # else it may be this very thread's: garbage is collected anywhere
                try:
                    self._close_unused()
                finally:
                    self._lock.release()

    def _next(self, cursor: Any, c: Any) -> Record | None:
        """The cursor's next record, copied before anybody can close the log."""
        with self._lock:
            self._open  # noqa: B018 - it raises if the log was closed meanwhile
            while (rc := lib.cl_log_cursor_next(cursor, c)) == -errno.EAGAIN:  # being read
                self._pump()
            if rc == -errno.ESTALE:
                why = f"what comes next here was trimmed or truncated: {self._kept()}"
                raise CorelaneError("read the log", why, "", errno.ESTALE)
            if rc < 0:
                check(rc, "read the log", ffi.string(lib.cl_log_cursor_why(cursor)).decode())
            if rc == 0:
                return None
            return Record(c.index, c.tag, c.kind, c.epoch, c.offset, bytes(ffi.buffer(c.data, c.bytes)))

    def _close_unused(self) -> None:
        """With the lock. The log itself closes those that it still has at its end."""
        while self._unused and self._ptr is not None and not self._lent:
            cursor = self._unused.popleft()
            while lib.cl_log_cursor_close(cursor) == -errno.EBUSY:  # its read is in flight
                self._pump()

    def _pump(self) -> None:
        if lib.cl_log_pump(self._ptr) == 0:
            self._blk.wait()

    def snapshot(self) -> Snapshot | None:
        """The snapshot kept, if there is one."""
        c = ffi.new("struct cl_log_snapshot *")
        with self._lock:
            lib.cl_log_snapshot_get(self._open, c)
        return Snapshot(c.index, c.tag, c.bytes, c.number) if c.number else None

    def save_snapshot(self, index: int, chunks: Iterable[bytes], *, tag: int = 0) -> None:
        """Stream a snapshot; it replaces the one kept when it is whole and durable.

        The log goes on between two chunks, which may be made of its records. One snapshot is saved at a time.
        """
        _check_index(f"save a snapshot up to {index}", index, lib.CL_LOG_INDEX_MOST)
        with self._saves:
            if self._saving:
                raise CorelaneError("begin a snapshot", "the chunks of another one ask for it", "end that one first")
            self._saving = True
            try:
                self._stream_snapshot(index, chunks, tag)
            finally:
                self._saving = False

    def _stream_snapshot(self, index: int, chunks: Iterable[bytes], tag: int) -> None:
        with self._lock:
            while (rc := lib.cl_log_snapshot_begin(self._open, index, tag)) == -errno.EAGAIN:
                self._pump()
            why = "no space was set apart for snapshots" if rc == -errno.ENOTSUP else self._why()
            check(rc, "begin a snapshot", why or None)
        for chunk in chunks:
            at, held = 0, ffi.from_buffer(chunk)
            with self._lock:
                while at < len(held):
                    took = lib.cl_log_snapshot_write(self._open, held + at, len(held) - at)
                    at += check(took, "write a snapshot", (took < 0 and self._why()) or None)
                    if took == 0:
                        self._pump()
        with self._lock:
            op, _held = self._op()
            self._wait(op, lib.cl_log_snapshot_commit(self._open, op), "commit a snapshot")

    def read_snapshot(self) -> Iterator[bytes]:
        """The kept snapshot, in pieces."""
        kept, at, buf = self.snapshot(), 0, ffi.new("char[65536]")
        while kept and at < kept.bytes:
            with self._lock:
                while (n := lib.cl_log_snapshot_read(self._open, kept.number, at, buf, len(buf))) == -errno.EAGAIN:
                    self._pump()
                why = ffi.string(lib.cl_log_snapshot_why(self._open)).decode()
            check(n, f"read the snapshot at byte {at}", why or None)
            at += n
            yield bytes(ffi.buffer(buf, n))
