"""The file that a view writes for ui.perfetto.dev and chrome://tracing: Trace Event Format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...runtime.errors import CorelaneError
from ...runtime.files import Whole

FIRST_ROW = 1000
"""Rows are threads of processes. Perfetto takes a thread 0 for the one that has its process' number, so that two rows
become one: rows are counted from here."""


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
            self._made.file.write(b'{"displayTimeUnit": "ns", "traceEvents": [\n')
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
