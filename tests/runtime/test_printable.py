"""Text of other programs is a line that no terminal takes for an order."""

from __future__ import annotations

import pytest

from corelane.runtime.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("kv, \u00fcber", "kv, \u00fcber"),
        ("a\nb\r", "a?b?"),
        ("\x1b[2J\x9b1m\x07", "?[2J?1m?"),
        ("\u202ename", "?name"),  # writes from right to left from here on
        ("\udcff", "?"),  # a byte of a path that is no text
        (b"\xffx\0", "\ufffdx?"),
        ("", ""),
    ],
)
def test_what_is_shown(text: str | bytes, shown: str) -> None:
    assert printable(text) == shown
