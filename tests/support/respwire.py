"""RESP on the wire: what was sent, what came back, and when two replies are the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Word = bytes | str | int | float


@dataclass(frozen=True)
class Reply:
    """One reply: kind is its first byte, value bytes, int, None or a list of replies (of a map key, value, ...)."""

    kind: str
    value: Any

    def sorted(self, pairs: bool = False) -> Any:
        """Its elements in an order that says nothing of how they came. pairs: they are fields and values."""
        if not isinstance(self.value, list):
            return (self.kind, self.value)
        if pairs:
            together = zip(self.value[::2], self.value[1::2], strict=True)
            return (self.kind, sorted(together, key=repr))
        return (self.kind, sorted(self.value, key=repr))


def parse(data: bytes, at: int = 0) -> tuple[Reply, int] | None:
    """The reply at an offset, and where the next one begins; None: it is not complete."""
    end = data.find(b"\r\n", at)
    if end < 0:
        return None
    kind, text, after = chr(data[at]), data[at + 1 : end], end + 2
    if kind in "+-,(#_":
        return Reply(kind, text), after
    if kind == ":":
        return Reply(kind, int(text)), after
    n = int(text)
    if n < 0:
        return Reply(kind, None), after
    if kind in "$=":
        if len(data) < after + n + 2:
            return None
        assert data[after + n : after + n + 2] == b"\r\n", data[at : after + n + 2]
        return Reply(kind, data[after : after + n]), after + n + 2
    assert kind in "*%~>", f"no reply begins so: {data[at : at + 40]!r}"
    parts = []
    for _ in range(2 * n if kind == "%" else n):
        part = parse(data, after)
        if part is None:
            return None
        parts.append(part[0])
        after = part[1]
    return Reply(kind, parts), after


def replies(data: bytes) -> list[tuple[Reply, bytes]]:
    """All replies, each with its bytes. Asserts that the last one is complete."""
    out, at = [], 0
    while at < len(data):
        one = parse(data, at)
        assert one is not None, f"cut off: {data[at:]!r}"
        out.append((one[0], data[at : one[1]]))
        at = one[1]
    return out
