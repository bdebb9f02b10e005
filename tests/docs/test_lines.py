"""How many lines of code the worked examples have, as docs/examples.md says, is counted."""

from __future__ import annotations

from pathlib import Path

import countlines
import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "examples.md"


def test_the_page_has_the_counts() -> None:
    text = PAGE.read_text()
    assert text == countlines.filled(text), "PYTHONPATH=tests/support python -m countlines docs/examples.md"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", 0),
        ('"""What it is."""\n\nx = 1  # and why\n# a remark\n', 1),
        ('def f():\n    """It.\n\n    More.\n    """\n    return """two\nlines"""\n', 3),
        ("@one\nclass A:\n    y = (\n        1,\n\n    )\n", 5),
    ],
)
def test_python(text: str, lines: int) -> None:
    assert countlines.count_python(text) == lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [("/* what\n * it is */\n#include <a.h>\n\nint a; /* and why */\n", 2), ("int f(void)\n{\n    /* x */\n}\n", 3)],
)
def test_c(text: str, lines: int) -> None:
    assert countlines.count_c(text) == lines
