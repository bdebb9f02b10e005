"""The file that a view writes for ui.perfetto.dev and chrome://tracing: Trace Event Format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...runtime.errors import CorelaneError
from ...runtime.files import Whole

_ROWS = 10_000  # of a group, at most


def place(group: int, row: int) -> dict[str, int]:
    """Where an event stands: a row of a group, which are a thread and its process to the viewers.

    Perfetto knows a thread by its number alone, as Linux does, and takes the one of its process' number for its main
    thread: a number that two groups share loses its name in one of them. So no two rows have the same number, and none
    has that of a group.
    """
    return {"pid": group, "tid": group * _ROWS + row}


class Output:
    """The file for the events: whole or not at all. Opened before anything is recorded, so that it is known then if it
    cannot be."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._made = Whole(path)
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> CorelaneError:
        return CorelaneError(f"write {self._path}", str(error.strerror), "give --out a file that can be written")

    def write(self, events: Iterable[Mapping[str, Any]]) -> CorelaneError | None:
        """All events. What went wrong, or None."""
        try:
            # No displayTimeUnit: Perfetto of before 2022 took it for the unit of the times, which are microseconds.
            self._made.file.write(b'{"traceEvents": [\n')
            for i, event in enumerate(events):
                self._made.file.write(((",\n" if i else "") + json.dumps(event)).encode())
            self._made.file.write(b"\n]}\n")
            self._made.keep()
        except OSError as error:
            return self._error(error)
        return None

    def close(self) -> None:
        """What was not written whole goes."""
        self._made.close()
