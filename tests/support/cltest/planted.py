"""Mistakes made on purpose in a copy of a source file, for tests that show that they are found."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from .cbuild import ROOT, CBuild


def from_the_root(text: str, folder: Path) -> str:
    """A source of `folder` whose includes are found wherever it lies: their paths become those from the root."""

    def whole(include: re.Match[str]) -> str:
        beside = os.path.normpath(folder / include[1])
        return f'#include "{beside}"' if (ROOT / beside).exists() else include[0]

    return re.sub(r'#include "([^"]+)"', whole, text)


def planted(tmp: Path, file: str, changes: Iterable[tuple[str, str]]) -> Path:
    """A copy of `file` in which each (old, new) of `changes` is made, and which compiles anywhere.

    An old text that is not there exactly once fails the test: change the mistake then.
    """
    text = (ROOT / file).read_text()
    for old, new in changes:
        assert text.count(old) == 1, f"{file} has {text.count(old)} times {old!r}"
        text = text.replace(old, new)
    out = tmp / Path(file).name
    out.write_text(from_the_root(text, Path(file).parent))
    return out


def build_with(builder: CBuild, tmp: Path, source: str, *mistakes: Path) -> Callable[..., str]:
    """The test program `source`, linked with the planted files and not the library's: call it with its arguments."""
    return builder.runner(builder.build_instead(source, mistakes, tmp))
