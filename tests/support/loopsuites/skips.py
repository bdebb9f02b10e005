"""Lists of tests that are not expected to pass: a pattern of names -> the reason."""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterable
from pathlib import Path

from .suites import ROOT

LISTS = ROOT / "tests" / "libos" / "asyncio" / "lists"


class Skips:
    """Read from TOML: `[skips]` with lines "test_events.*.test_x" = "why". Raises ValueError for one without reason."""

    def __init__(self, path: Path) -> None:
        self._reasons: dict[str, str] = tomllib.loads(path.read_text())["skips"]
        for pattern, reason in self._reasons.items():
            if not isinstance(reason, str) or not reason.strip():
                raise ValueError(f"{path.name}: {pattern} has no reason: say why it is skipped")

    @classmethod
    def of(cls, suite: str) -> Skips:
        """The list in the repository."""
        return cls(LISTS / f"{suite}.toml")

    def reason(self, test: str) -> str | None:
        """Why a test is skipped; None if it is not."""
        for pattern, reason in self._reasons.items():
            if fnmatch.fnmatchcase(test, pattern):
                return reason
        return None

    def unused(self, tests: Iterable[str]) -> list[str]:
        """Patterns that fit none of these."""
        names = list(tests)
        return [pattern for pattern in self._reasons if not fnmatch.filter(names, pattern)]
