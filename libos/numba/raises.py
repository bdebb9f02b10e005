"""What compiled code may raise, and where: numba keeps each exception as a pickle among the constants of the code.

Of an entry point that C calls nobody ever unpickles one. There the constants are rewritten as words, which
libos/raised.c tells: two strings, one behind the other, the exception and the place. Importing this module does not
import numba.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_CONSTANT = re.compile(r'^(@\.const\.pickledata\.(\w+) = [^\n]*?\[(\d+) x i8\] c)"([^"\n]*)"', re.M)
_USED = re.compile(r"^ [^\n]*@\.const\.pickle[^\n]*", re.M)  # by an instruction


class Raise(NamedTuple):
    """An exception that code may raise. kind: its class. args: what is known of its arguments when it is compiled;
    `...` is not. file, line, function: where; file "": nobody knows."""

    kind: type[BaseException]
    args: tuple[Any, ...]
    file: str = ""
    line: int = 0
    function: str = ""

    @property
    def words(self) -> str:
        """As in 'ValueError: no such thing'."""
        parts = ["..." if arg is ... else repr(arg) for arg in self.args]
        if not parts:
            return self.kind.__name__
        if len(parts) > 1:
            return f"{self.kind.__name__}: ({', '.join(parts)})"
        return f"{self.kind.__name__}: {self.args[0] if parts[0] != '...' else '...'}"

    @property
    def place(self) -> str:
        """As a traceback says it; "" if nobody knows."""
        return f'File "{self.file}", line {self.line}, in {self.function}' if self.file else ""


def _bytes_of(text: str) -> bytes:
    """The bytes of an LLVM string constant: a backslash is written twice, other odd bytes as two hexadecimal digits."""
    return re.sub(r"\\(\\|[0-9A-Fa-f]{2})", lambda m: "\\" if m[1] == "\\" else chr(int(m[1], 16)), text).encode(
        "latin-1"
    )


def _read(raw: bytes) -> Raise | None:
    """None: it is something else that numba keeps as a pickle."""
    try:
        kind, args, where = pickle.loads(raw)
        if not issubclass(kind, BaseException):
            return None
        known = tuple(... if type(arg).__module__.startswith("llvmlite.") else arg for arg in args or ())
        name, file, line = where or ("", "", 0)
        return Raise(kind, known, str(file), int(line), str(name))
    except Exception:  # what numba keeps there is its own business
        return None


def _is_raised(found: Raise) -> bool:
    """Not so what numba puts before print() and its like."""
    return not (found.args and str(found.args[0]).startswith("missing Environment"))


def raises(text: str) -> Iterator[Raise]:
    """What the functions of a module may raise. text: LLVM's."""
    used = set(re.findall(r"@\.const\.pickle(?:buf|data)\.(\w+)", "\n".join(_USED.findall(text))))
    for match in _CONSTANT.finditer(text):
        found = _read(_bytes_of(match[4])) if match[2] in used else None
        if found is not None and _is_raised(found):
            yield found


def in_words(text: str) -> str:
    """The same module; where it had pickled exceptions it has words of the same length."""
    return _CONSTANT.sub(_rewritten, text)


def _rewritten(match: re.Match[str]) -> str:
    found, room = _read(_bytes_of(match[4])), int(match[3])
    if found is None:
        return match[0]
    place = found.place.replace("\0", "?").encode(errors="replace")
    words = found.words.replace("\0", "?").replace("\n", " ").encode(errors="replace")
    if len(place) + 2 > room:  # a pickle of it is longer
        return match[0]
    words = words[: room - len(place) - 2].decode(errors="ignore").encode()
    said = (words + b"\0" + place).ljust(room, b"\0")
    return match[1] + '"' + "".join(f"\\{byte:02X}" for byte in said) + '"'
