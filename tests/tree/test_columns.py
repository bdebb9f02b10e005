"""Lines of C end at column 120; the formatter sees to code, and leaves comments as they are."""

from __future__ import annotations

import subprocess

from cltest.cbuild import ROOT

COLUMNS = 120


def test_no_line_of_c_is_too_long() -> None:
    names = subprocess.run(
        ["git", "ls-files", "*.c", "*.h"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(names) > 500
    long = [
        f"{name}:{number}"
        for name in names
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert not long
