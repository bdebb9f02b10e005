"""The file that a view writes for ui.perfetto.dev and chrome://tracing: Trace Event Format."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...runtime.errors import CorelaneError

FIRST_ROW = 1000
"""Rows are threads of processes. Perfetto takes a thread 0 for the one that has its process' number, so that two rows
become one: rows are counted from here."""


class Output:
    """The file for the events: whole or not at all. Opened before anything is recorded, so that it is known then if it
    cannot be."""

    def __init__(self, path: Path) -> None:
        self._path, self._fresh = path, path.with_name(path.name + ".new")
        try:
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            self._file = self._fresh.open("w")
        except OSError as error:
            raise self._error(error) from error

    def _error(self, error: OSError) -> CorelaneError:
        return CorelaneError(f"write {self._path}", str(error.strerror), "give --out a file that can be written")

    def write(self, events: Iterable[Mapping[str, Any]]) -> CorelaneError | None:
        """All events. What went wrong, or None."""
        try:
            self._file.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
            for i, event in enumerate(events):
                self._file.write((",\n" if i else "") + json.dumps(event))
            self._file.write("\n]}\n")
            self._file.close()
            self._fresh.replace(self._path)
        except OSError as error:
            return self._error(error)
        return None

    def close(self) -> None:
        """What was not written whole goes."""
        with contextlib.suppress(OSError):  # of a full disk, which `write` has told
            self._file.close()
        self._fresh.unlink(missing_ok=True)
