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


# The first that matches is the longest that does: a number that letters follow is a word.
_TOKEN = re.compile(
    r"""
      (?P<blank>    [ \t\r\n\f]+ )
    | (?P<comment>  //[^\n]* | /\*.*?\*/ )
    | (?P<code>     %\{.*?\}% )
    | (?P<string>   "(?:\\.|[^"\\])*" )
    | (?P<command>  `(?:\\.|[^`\\])*` )
    | (?P<option>   --[a-zA-Z0-9_]+ )
    | (?P<ellipsis> \.\.\. )
    | (?P<ip>       \d+\.\d+\.\d+\.\d+ )
    | (?P<hex>      0x[0-9a-fA-F]+(?![a-zA-Z0-9_]) )
    | (?P<float>    -?\d*\.\d+ )
    | (?P<int>      -\d+ | \d+(?![a-zA-Z0-9_]) )
    | (?P<word>     [a-zA-Z0-9_]+ )
    """,
    re.VERBOSE | re.DOTALL,
)


_DIGITS_MOST = 32  # of a number


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
        if kind in ("int", "hex", "float") and len(piece) > _DIGITS_MOST:
            raise ScriptError(line, f"a number of {len(piece)} digits is more than a script can mean")
        line += piece.count("\n")
        at = end
    out.append(Token("end", "", line))
    return out


def _longest(text: str, at: int) -> tuple[str, int]:
    """Kind and end of the token there. Of a character that begins nothing: itself."""
    if text[at] == "#" and not text[text.rfind("\n", 0, at) + 1 : at].strip():
        return "comment", (text + "\n").index("\n", at)
    found = _TOKEN.match(text, at)
    return (found.lastgroup or "", found.end()) if found else (text[at], at + 1)


def _inner(kind: str, piece: str) -> str:
    """A token's text without what surrounds it."""
    if kind in ("string", "command"):
        return piece[1:-1]
    if kind == "option":
        return piece[2:]
    return piece[2:-2].strip(" \t") if kind == "code" else piece
