"""Lists of tests that are not expected to pass, or whose endpoints are on Linux all the same: a pattern of names -> the
reason."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable
from pathlib import Path

from .interpreters import ROOT, THIS

LISTS = ROOT / "tests" / "libos" / "asyncio" / "lists"


class Skips:
    """Read from TOML: tables with lines "test_events.*.test_x" = "why". Raises ValueError for one without reason.

    [skips]: of all. ["3.13".skips]: by that interpreter besides. [wire.skips], [wire.linux]: over a tap; what is
    skipped there besides, and what passes with all its endpoints on Linux.
    """

    def __init__(self, path: Path, python: str = THIS.version, *, wire: bool = False) -> None:
        lists = tomllib.loads(path.read_text())
        over = lists.get("wire", {}) if wire else {}
        self._skips: dict[str, str] = lists["skips"] | lists.get(python, {}).get("skips", {}) | over.get("skips", {})
        self._linux: dict[str, str] = over.get("linux", {})
        for pattern, reason in (*self._skips.items(), *self._linux.items()):
            if not isinstance(reason, str) or not reason.strip():
                raise ValueError(f"{path.name}: {pattern} has no reason: say why it is listed")

    @classmethod
    def of(cls, suite: str, python: str = THIS.version, *, wire: bool = False) -> Skips:
        """The list in the repository."""
        return cls(LISTS / f"{suite}.toml", python, wire=wire)

    def reason(self, test: str) -> str | None:
        """Why a test is skipped; None if it is not."""
        return _first(self._skips, test)

    def on_linux(self, test: str) -> str | None:
        """Why its endpoints are Linux'; None: they are not to be."""
        return _first(self._linux, test)

    def unused(self, tests: Iterable[str]) -> list[str]:
        """Patterns that fit none of these."""
        names = list(tests)
        return [pattern for pattern in (*self._skips, *self._linux) if not fnmatch.filter(names, pattern)]


def _first(reasons: dict[str, str], test: str) -> str | None:
    return next((reason for pattern, reason in reasons.items() if fnmatch.fnmatchcase(test, pattern)), None)
