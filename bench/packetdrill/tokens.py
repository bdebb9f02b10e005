"""Text to tokens. The longest match wins, as in packetdrill's own scanner; comments and blanks fall away.

Beyond that scanner a line that begins with # is a comment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...runtime.errors import CorelaneError


class ScriptError(CorelaneError):
    """A script that cannot be read. line: from 1."""

    def __init__(self, line: int, why: str) -> None:
        self.line = line
        super().__init__(f"line {line}", why)


class NotSupported(CorelaneError):
    """A script needs what is not here. line: where, from 1; needs: what, in words."""

    def __init__(self, needs: str, line: int = 0) -> None:
        self.line = line
        self.needs = needs
        super().__init__(f"not supported here: {needs}")


@dataclass(frozen=True)
class Token:
    """kind: option, ellipsis, float, int, hex, ip, word, string, command, code, end; or the character itself."""

    kind: str
    text: str
    line: int


_PATTERNS = (
    ("blank", re.compile(r"[ \t\r\n\f]+")),
    ("comment", re.compile(r"//[^\n]*|/\*.*?\*/", re.S)),
    ("code", re.compile(r"%\{.*?\}%", re.S)),
    ("string", re.compile(r'"(?:\\.|[^"\\])*"', re.S)),
    ("command", re.compile(r"`(?:\\.|[^`\\])*`", re.S)),
    ("option", re.compile(r"--[a-zA-Z0-9_]+")),
    ("ellipsis", re.compile(r"\.\.\.")),
    ("ip", re.compile(r"\d+\.\d+\.\d+\.\d+")),
    ("hex", re.compile(r"0x[0-9a-fA-F]+")),
    ("float", re.compile(r"-?\d*\.\d+")),
    ("int", re.compile(r"-?\d+")),
    ("word", re.compile(r"[a-zA-Z0-9_]+")),
)


def tokens(text: str) -> list[Token]:
    """The tokens of a script, with one of kind "end" behind the last. Raises ScriptError."""
    out: list[Token] = []
    at, line = 0, 1
    while at < len(text):
        kind, end = _longest(text, at)
        piece = text[at:end]
        if kind not in ("blank", "comment"):
            out.append(Token(kind, _inner(kind, piece), line))
        if kind in ('"', "`") or (text.startswith(("/*", "%{"), at) and kind not in ("comment", "code")):
            raise ScriptError(line, f"{piece!r} begins something that has no end")
        line += piece.count("\n")
        at = end
    out.append(Token("end", "", line))
    return out


def _longest(text: str, at: int) -> tuple[str, int]:
    best, end = text[at], at + 1
    if best == "#" and not text[text.rfind("\n", 0, at) + 1 : at].strip():
        return "comment", (text + "\n").index("\n", at)
    for kind, pattern in _PATTERNS:
        found = pattern.match(text, at)
        if found and (found.end() > end or (found.end() == end and best == text[at])):
            best, end = kind, found.end()
    return best, end


def _inner(kind: str, piece: str) -> str:
    """A token's text without what surrounds it."""
    if kind in ("string", "command"):
        return piece[1:-1]
    if kind == "option":
        return piece[2:]
    return piece[2:-2].strip(" \t") if kind == "code" else piece
