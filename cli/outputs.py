"""Files that a command is to write when it has measured."""

from __future__ import annotations

import os
from pathlib import Path

from ..runtime.errors import CorelaneError


def check_plot(path: Path) -> None:
    """Refuse a plot that could not be drawn: one that is no PNG, or where matplotlib is missing."""
    if path.suffix.lower() != ".png":
        raise CorelaneError(f"write {path}", "a plot is a PNG", "give a name that ends with .png")
    check_writable(path)
    from ..bench.harness import plot

    plot.check()


def check_writable(path: Path) -> None:
    """Refuse before measuring what could not be written after it."""
    if path.is_dir():
        raise CorelaneError(f"write {path}", "it is a folder", "give a file's name")
    folder = next(p for p in path.absolute().parents if p.exists())
    if path.exists():
        if not os.access(path, os.W_OK):
            raise CorelaneError(f"write {path}", "it may not be written", "give another place")
    elif not folder.is_dir() or not os.access(folder, os.W_OK):
        raise CorelaneError(f"write {path}", f"{folder} is not a folder that may be written", "give another place")
