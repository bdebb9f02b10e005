"""Traces that are kept on disk, each around a limit of latency that was broken.

A file is a line of JSON (`Head`, with the format's number), another one (`Ran`, or null) and behind them records as in
a segment. It is the user's own (mode 0600), and there as a whole or not at all. A folder has a budget of bytes and of
files: the oldest go first, by their names, which begin with the time in UTC. A name is behind all others even if the
system's clock was set back. What is in a file is read as what a stranger wrote: bounded, and each record only if it is
one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import json
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...runtime._native import ffi, lib
from ...runtime.errors import CorelaneError, SystemLimit
from ...runtime.perf import Mapped, Sample
from ...runtime.trace import Records, records_of
from .pieces import nearest, number, raw
from .slo import Broken

FORMAT = 1
_HEAD_BYTES, _RAN_BYTES = 1 << 16, 1 << 23
_MOST_BYTES = 1 << 30
_LAST_MS = 253_370_764_800_000  # the year 9999, behind which no name has a time
_NAME = re.compile(r"\d{8}T\d{6}\.\d{3}Z-[A-Za-z0-9_.:-]+-\d+\.trace(\.new)?")


@dataclass(frozen=True)
class Head:
    """pid, name, hz, mode, one_in, services: of the segment. at: when the limit was found broken, s since 1970, for
    people. more: times that limits were broken since the trace before, and nothing was kept. lost: records that were
    written over before they could be read."""

    pid: int
    name: str
    hz: int
    mode: str
    one_in: int
    services: tuple[str, ...]
    broken: Broken
    at: float
    more: int
    lost: int

    @property
    def when(self) -> str:
        """For people, in local time."""
        return datetime.datetime.fromtimestamp(self.at).astimezone().isoformat(" ", "milliseconds")


@dataclass(frozen=True)
class Ran:
    """Where kthreads were: samples, hz a second of their CPU time, and what the process had mapped."""

    hz: int
    samples: tuple[Sample, ...]
    mapped: tuple[Mapped, ...]


def keep(folder: Path, head: Head, records: Records, budget_bytes: int, files: int, ran: Ran | None = None) -> Path:
    """Write one: at most a quarter of the budget, those nearest to what broke the limit. SystemLimit: it cannot be."""
    line = json.dumps({"corelane_trace": FORMAT} | dataclasses.asdict(head)).encode() + b"\n"
    line += json.dumps(None if ran is None else _document(ran)).encode() + b"\n"
    room = (budget_bytes // 4 - len(line)) // int(lib.CL_TRACE_RECORD)
    records = nearest(records, room, head.broken.begin)
    data = line + raw(records)
    try:
        _own(folder)
        name = _free_name(folder, head)
        _make_room(folder, budget_bytes - len(data), files - 1, "")
        _write(folder / name, data)
        _make_room(folder, budget_bytes, files, name)  # others may have written meanwhile
    except OSError as error:
        hint = "give trace.folder a place of your own that has room"
        raise SystemLimit(f"keep a trace in {folder}", error.strerror or str(error), hint) from error
    return folder / name


def _document(ran: Ran) -> dict[str, Any]:
    samples = [[sample.number, sample.ns, *sample.chain] for sample in ran.samples]
    return {"hz": ran.hz, "mapped": [dataclasses.astuple(mapped) for mapped in ran.mapped], "samples": samples}


def _free_name(folder: Path, head: Head) -> str:
    """One behind all others, whatever the clock says; but not behind those of the year 9999."""
    app = re.sub(r"[^A-Za-z0-9_.:-]", "_", head.name) or "_"
    taken = {_ms_of(name) for name in names(folder)}
    ms = max([int(head.at * 1000), *(at + 1 for at in taken if at < _LAST_MS)])
    while ms in taken:
        ms += 1
    stamp = datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
    return f"{stamp:%Y%m%dT%H%M%S}.{ms % 1000:03}Z-{app}-{head.pid}.trace"


def _ms_of(name: str) -> int:
    """The time that a name begins with, in ms since 1970; 0: it is none."""
    try:
        stamp = datetime.datetime.strptime(name[:19], "%Y%m%dT%H%M%S.%f")
    except ValueError:
        return 0
    return round(stamp.replace(tzinfo=datetime.UTC).timestamp() * 1000)


def _own(folder: Path) -> None:
    """Make it, for its user alone. PermissionError: others can write there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EACCES, "it is another user's, or others can write there")


def _write(path: Path, data: bytes) -> None:
    fresh = path.with_name(path.name + ".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
        try:
            file.write(data)
            file.flush()
            fresh.rename(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise


def _make_room(folder: Path, budget_bytes: int, files: int, but: str) -> None:
    """Delete the oldest until the others fit."""
    there = []
    for name in sorted(os.listdir(folder)):
        with contextlib.suppress(FileNotFoundError):  # another process makes room, too
            if _NAME.fullmatch(name):
                there.append((name, (folder / name).lstat().st_size))
    left, size = len(there), sum(size for _, size in there)
    for name, of in there:
        if left <= max(files, 0) and size <= max(budget_bytes, 0):
            return
        if name != but:
            (folder / name).unlink(missing_ok=True)
            left, size = left - 1, size - of


def names(folder: Path) -> list[str]:
    """Those that there are, oldest first; none where there is no folder. SystemLimit: it cannot be read."""
    try:
        return sorted(name for name in os.listdir(folder) if _NAME.fullmatch(name) and not name.endswith(".new"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SystemLimit(f"list the traces in {folder}", error.strerror or str(error)) from error


def head_of(path: Path) -> Head:
    """What a file says of itself. CorelaneError: it is none."""
    return _read(path)[0]


def load(path: Path) -> tuple[Head, Records]:
    """A file's trace. CorelaneError: it is none."""
    head, _, data = _read(path)
    size, whole = int(lib.CL_TRACE_RECORD), ffi.from_buffer(data)
    good = [at for at in range(0, len(data) - size + 1, size) if lib.cl_trace_valid(whole + at)]
    bad = -(-len(data) // size) - len(good)
    records = records_of(data if not bad else b"".join(data[at : at + size] for at in good), head.lost, bad)
    assert number(records) == len(good)
    return head, records


def ran(path: Path) -> Ran | None:
    """Where its kthreads were; None: that was not sampled. CorelaneError: it is no trace."""
    return _read(path)[1]


def _read(path: Path) -> tuple[Head, Ran | None, bytes]:
    what = f"read the trace {path}"
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_BYTES:
                raise CorelaneError(what, "it is none: no file, or one of more than a GiB")
            lines = (file.readline(_HEAD_BYTES), file.readline(_RAN_BYTES))
            data = file.read()
    except OSError as error:
        raise CorelaneError(
            what, error.strerror or str(error), "corelane trace last --list", error.errno or 0
        ) from error
    try:
        return _head(json.loads(lines[0])), _ran(json.loads(lines[1])), data
    except (ValueError, TypeError, KeyError, RecursionError) as error:  # a JSONDecodeError is a ValueError
        raise CorelaneError(what, f"it is none, or of another version ({error})") from error


def _head(said: Any) -> Head:
    """Checked. ValueError, TypeError, KeyError."""
    if not isinstance(said, dict) or said.get("corelane_trace") != FORMAT:
        raise ValueError("its first line does not say so")
    broken = Broken(**_checked(Broken, said["broken"]))
    given = _checked(Head, said | {"broken": broken, "services": tuple(map(str, said["services"]))})
    head = Head(**given)
    if not 0 < head.hz < 1 << 40 or head.one_in < 1 or not 0 <= head.at < 1 << 36:
        raise ValueError("its numbers cannot be")
    return head


def _ran(said: Any) -> Ran | None:
    """Checked. ValueError, TypeError, KeyError."""
    if said is None:
        return None
    samples = tuple(Sample(number, ns, tuple(chain)) for number, ns, *chain in said["samples"])
    mapped = tuple(Mapped(*one) for one in said["mapped"])
    numbers = [said["hz"], *(n for s in samples for n in (s.number, s.ns, *s.chain))]
    numbers += [n for m in mapped for n in (m.begin, m.end, m.offset)]
    if not all(type(n) is int and 0 <= n < 1 << 64 for n in numbers) or not said["hz"]:
        raise ValueError("its numbers cannot be")
    if not all(sample.chain for sample in samples) or not all(type(m.path) is str for m in mapped):
        raise ValueError("its samples cannot be")
    return Ran(said["hz"], samples, mapped)


_TYPES: dict[str, Sequence[type]] = {"int": (int,), "float": (int, float), "str": (str,)}


def _checked(cls: type[Any], said: Any) -> dict[str, Any]:
    """The fields of a dataclass, of the types that it has."""
    out = {}
    for field in dataclasses.fields(cls):
        value = said[field.name]
        if type(value) not in _TYPES.get(str(field.type), (type(value),)):
            raise TypeError(f"{field.name} is {value!r}")
        out[field.name] = value
    return out
