"""Elements of HTML as strings. What is not `Html` is text, and is escaped."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Container, Iterable, Sequence

VOID = frozenset({"br", "hr", "meta"})
_TAG = re.compile("<[^>]*>")
LONG = 24  # letters of a cell from which on it may have several lines


class Html(str):
    """Markup."""

    __slots__ = ()


def el(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. children: Html, text, or lists of both; None is left out. attributes: `class_` and the like for
    Python's own words, "_" for "-"; True: without a value; None and False: not there."""
    told = "".join(_attribute(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{name}{told}>")
    return Html(f"<{name}{told}>{joined(children)}</{name}>")


def joined(children: Iterable[object]) -> Html:
    """One after the other."""
    return Html("".join(map(_child, children)))


def _child(child: object) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return html.escape(child, quote=False)
    if isinstance(child, Iterable):
        return joined(child)
    return html.escape(str(child), quote=False)


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    return f" {key}" if value is True else f' {key}="{html.escape(str(value))}"'


def data(ident: str, json_text: str) -> Html:
    """JSON for scripts, which nothing executes. ident: empty: it needs none."""
    safe = json_text.replace("<", "\\u003c")  # no end tag, no comment
    return Html(f'<script type="application/json"{_attribute("id", ident or None)}>{safe}</script>')


class Numbered:
    """Ids that no other element of a page has: "table-1", "plot-2"."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def __call__(self, kind: str) -> str:
        return f"{kind}-{next(self._count)}"


def table(
    ids: Numbered,
    caption: str,
    head: Sequence[object],
    rows: Iterable[Sequence[object]],
    words: Container[int] = (0,),
) -> Html:
    """A table that scrolls by itself where it is wider than the page; its caption does not. words: columns without
    numbers. The first cell of a row is its head."""
    ident = ids("table")

    def cell(name: str, column: int, content: object, scope: str | None) -> Html:
        made = joined([content])
        look = "number" if column not in words else "long" if len(_TAG.sub("", made)) >= LONG else None
        return el(name, made, scope=scope, class_=look)

    heads = [el("th", content, scope="col", class_=None if i in words else "number") for i, content in enumerate(head)]
    body = [
        el("tr", [cell("td" if i else "th", i, content, None if i else "row") for i, content in enumerate(row)])
        for row in rows
    ]
    named = el("caption", el("span", caption), id=ident)
    inner = el("table", named, el("thead", el("tr", heads)), el("tbody", body))
    return el("div", inner, class_="scroll", role="region", tabindex="0", aria_labelledby=ident)


def items(entries: Iterable[object], class_: str | None = None) -> Html | None:
    """A list; None of nothing."""
    made = [el("li", entry) for entry in entries]
    return el("ul", made, class_=class_) if made else None
