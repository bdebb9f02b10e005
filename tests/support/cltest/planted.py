"""Mistakes made on purpose in a copy of a source file, for tests that show that they are found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from .cbuild import ROOT, CBuild


def planted(tmp: Path, file: str, changes: Iterable[tuple[str, str]]) -> Path:
    """A copy of `file` in which each (old, new) of `changes` is made, and which compiles anywhere.

    An old text that is not there exactly once fails the test: change the mistake then.
    """
    text = (ROOT / file).read_text()
    for old, new in changes:
        assert text.count(old) == 1, f"{file} has {text.count(old)} times {old!r}"
        text = text.replace(old, new)
    text = re.sub(r'#include "(?!\.\.)([^"]+)"', rf'#include "{Path(file).parent}/\1"', text)
    text = re.sub(r'#include "\.\./\.\./([^"]+)"', r'#include "\1"', text)
    out = tmp / Path(file).name
    out.write_text(text)
    return out


def build_with(builder: CBuild, tmp: Path, source: str, *mistakes: Path) -> Callable[..., str]:
    """The test program `source`, linked with the planted files and not the library's: call it with its arguments."""
    program = tmp / f"program_{Path(source).name}"
    beside = rf'#include "{Path(source).parent}/\1"'
    program.write_text(re.sub(r'#include "([^"/]+)"', beside, (ROOT / source).read_text()))
    return builder.runner(builder.build(program, own=list(mistakes)))
