"""corelane log: make, check or dump a persistent log in a file, a block device or a storage area. The last two change
nothing."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

from ..runtime.errors import CorelaneError
from . import values
from .usage import WrongUsage

if TYPE_CHECKING:
    from ..libos.storage.log.log import Log
    from ..libos.storage.log.report import LogReport

IMPORTS = ("..libos._native",)
_MIB = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("check", "dump", "create"), help="what to do")
    parser.add_argument("path", help="the file or block device; with --area a storage area's name")
    parser.add_argument("--area", action="store_true", help="check, dump: in a storage area that nobody has open")
    text = "with --area: the iokernel's socket (default: the user's own, or root's)"
    parser.add_argument("--socket", type=values.socket, metavar="PATH", help=text)
    parser.add_argument("--first", type=values.positive, metavar="INDEX", help="dump: from this record on")
    parser.add_argument("--count", type=values.positive, metavar="N", help="dump: at most so many records")
    text = "create: size of the file (default 64; a device's own)"
    parser.add_argument("--mib", type=values.positive_u32, metavar="N", help=text)
    parser.add_argument("--force", action="store_true", help="create: give up what the block device holds")
    parser.add_argument(
        "--snapshot-mib", type=values.whole_u32, default=0, metavar="N", help="create: largest snapshot (default none)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON: check one object, dump one a line")


def run(options: argparse.Namespace) -> int:
    """0; 1 if the log is damaged before its end, or a record cannot be read."""
    from ..libos.storage.log.log import Log

    if options.action == "create":
        if options.area:
            why = "who opens a log in a new area makes it"
            raise WrongUsage(f"make a log in storage area {options.path}", why, "use `corelane areas create`")
        size = _create(options)
        print(json.dumps({"path": options.path, "bytes": size}) if options.json else "created")
        return 0
    opened = (
        Log.open_area(options.path, options.socket, on_damage="read-only")
        if options.area
        else Log.open(options.path, on_damage="read-only")
    )
    with opened as log:
        return check(log, options.json) if options.action == "check" else dump(log, options)


def _create(options: argparse.Namespace) -> int:
    from ..libos.storage.log.log import Log, format_device, is_device

    snapshot_bytes = options.snapshot_mib * _MIB
    if is_device(options.path):
        if options.mib:
            raise WrongUsage(f"make a log of {options.path}", "--mib is given", "a block device has its own size")
        return format_device(options.path, snapshot_bytes=snapshot_bytes, force=options.force)
    if options.force:
        raise WrongUsage(f"make the log {options.path}", "--force is given", "it is for block devices only")
    size = int(options.mib or 64) * _MIB
    Log.create(options.path, size, snapshot_bytes=snapshot_bytes)
    return size


def check(log: Log, as_json: bool) -> int:
    """Recovery has read every flush; now every record is read by its index, as applications do; then the snapshot."""
    report, errors, n = log.report, [], 0
    try:
        for _record in log.records():
            n += 1
    except CorelaneError as e:
        errors.append(str(e))
    try:
        for _piece in log.read_snapshot():
            pass
    except CorelaneError as e:
        errors.append(str(e))
    why = "; ".join(errors)
    damaged = report.tail == "damaged" or bool(why)
    if as_json:
        kept = log.snapshot()
        said: dict[str, Any] = dataclasses.asdict(report) | {"readable": n, "read_error": why, "damaged": damaged}
        said |= {"usage": log.usage(), "meta": log.meta().hex(), "snapshot": dataclasses.asdict(kept) if kept else None}
        print(json.dumps(said))
    else:
        print("\n".join(lines(log, report, n)))
        if why:
            print(why)
    return int(damaged)


def lines(log: Log, report: LogReport, readable: int) -> list[str]:
    """What a check found, for people."""
    records = report.next_index - report.first_index
    out = [f"records  {records:,} ({readable:,} read back)"]
    if records:
        out[0] += f", indexes {report.first_index} to {report.next_index - 1}"
    out.append(f"flushes  {report.flushes:,}, ending at offset {report.last_offset}; epoch {report.epoch}")
    u = log.usage()
    full, ring = u["kept_bytes"] + u["dead_bytes"], max(u["ring_bytes"], 1)
    out.append(
        f"ring     {ring:,} bytes, {100 * full // ring} % full: records {u['kept_bytes']:,}, to be won back"
        f" {u['dead_bytes']:,}"
    )
    if meta := log.meta():
        out.append(f"meta     {len(meta)} bytes")
    if kept := log.snapshot():
        out.append(f"snapshot {kept.bytes:,} bytes, of index {kept.index}, tag {kept.tag}")
    for slot in report.bad_superblocks:
        out.append(f"superblock {slot}, at offset {slot * 4096}, is torn or damaged; the other one was used")
    if report.unreadable_blocks:
        out.append(
            f"UNREADABLE {report.unreadable_blocks} blocks of 4096 bytes, one at offset {report.unreadable_offset}"
        )
    if report.unused_bytes:
        out.append(f"unused   {report.unused_bytes:,} bytes that the area grew by: opening the log takes them")
    if report.beyond_flushes:
        out.append(f"behind the end lie {report.beyond_flushes} later flushes, of which nothing is given out")
    if report.tail == "damaged" and report.acknowledged_index >= report.next_index:
        out.append(
            f"LOST     indexes {report.next_index} to {report.acknowledged_index} at least had been acknowledged"
        )
    out.append(f"end      {report.tail}" + (f": {report.why}" if report.why else ""))
    return out


def dump(log: Log, options: argparse.Namespace) -> int:
    """Every record, oldest first."""
    if options.first and not log.first_index <= options.first <= log.durable_index:
        raise CorelaneError(
            f"dump from index {options.first}", f"the records are {log.first_index} to {log.durable_index}"
        )
    for n, record in enumerate(log.records(options.first), 1):
        if options.json:
            print(json.dumps(dataclasses.asdict(record) | {"data": record.data.hex()}))
        else:
            shown = record.data[:48].decode("ascii", errors="backslashreplace")
            shown = "".join(c if c.isprintable() else "." for c in shown) + ("..." if len(record.data) > 48 else "")
            where = f"index {record.index}  tag {record.tag}  epoch {record.epoch}  offset {record.offset}"
            print(f"{where}  {len(record.data)} bytes  {shown}")
        if n == options.count:
            break
    if log.report.tail == "damaged":
        print(log.report.why, file=sys.stderr)
        return 1
    return 0
