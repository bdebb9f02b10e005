"""Text of other programs, for people: names of their threads, functions, files.

They choose it, and a terminal takes some characters for orders: to move, to write over what was said, to answer in its
user's place (ECMA-48). What is no printable character is a question mark.
"""

from __future__ import annotations


def printable(text: str | bytes) -> str:
    """One line of it. Bytes are UTF-8, or question marks."""
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    return shown if shown.isprintable() else "".join(c if c.isprintable() else "?" for c in shown)
