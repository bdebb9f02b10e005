"""The log behind the engine (`appendonly`): made, opened, and replayed before the port is served.

A record holds units (apps/resp/propagate.h), a long one in pieces: all but its last are of kind PIECE. Pieces whose
last one is not there were never acknowledged: they are cut off.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from ...libos.storage.log.log import Log
from ...runtime.errors import CorelaneError
from ...runtime.files import sync_folder
from .engine import Engine

PIECE = 1
"""Kind of a record that the next one continues (apps/resp/writer.h)."""
LEAST_MIB = 4
RINGS = 4
"""A log that is made is so many times as large as the engine's memory: a rewrite needs the state's room once more."""


@dataclass(frozen=True)
class Recovered:
    """What a log held: records, their bytes, bytes of units that were applied, records that were cut off."""

    records: int
    bytes: int
    cut: int


def open_log(path: str, mib: int, memory_bytes: int) -> Log:
    """The log in a file or device; a file is made if there is none, of `mib` MiB or by the memory. CorelaneError."""
    if not Path(path).exists():
        size = mib << 20 if mib else max(RINGS * memory_bytes, LEAST_MIB << 20)
        if size < LEAST_MIB << 20:
            raise CorelaneError("run resp", f"a log of {mib} MiB", f"{LEAST_MIB} MiB or more")
        _make(path, size & ~4095)
    return Log.open(path)


def _make(path: str, size: int) -> None:
    """It gets its name when it is a log, and takes the place of none: of two that start at once the second has the
    first one's. Until then it is PATH.NUMBER.new, which only a process that was killed leaves behind."""
    fresh = f"{path}.{secrets.token_hex(4)}.new"
    try:
        Log.create(fresh, size)
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
        sync_folder(Path(path).absolute().parent)
    except OSError as error:
        raise CorelaneError(
            f"make the log {path}", error.strerror or str(error), "a log needs a disk with room"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            Path(fresh).unlink()


def recover(engine: Engine, log: Log) -> Recovered:
    """Apply a log to an engine that was made new. Raises CorelaneError naming the record that cannot be applied."""
    pieces: list[bytes] = []
    records = size = 0
    for record in log.records():
        pieces.append(record.data)
        records += 1
        if record.kind == PIECE:
            continue
        units = b"".join(pieces)
        pieces.clear()
        size += len(units)
        try:
            engine.apply(units)
        except CorelaneError as error:
            why = f"record {record.index} cannot be applied: {error.why}"
            raise CorelaneError("replay the log", why, "it is another program's, or this is a bug") from error
    if pieces:
        log.truncate(log.durable_index + 1 - len(pieces))
    return Recovered(records - len(pieces), size, len(pieces))
