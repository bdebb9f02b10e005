"""The frame of a page: landmarks, contents, style, script. It loads nothing, and its policy lets it load nothing."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .markup import Html, el, joined

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Section:
    """A part of a page with an entry in its contents. mark: a word behind the entry: "2 missed"."""

    ident: str
    title: str
    body: Sequence[Html | None]
    mark: str = ""


@functools.cache
def _part(name: str) -> str:
    """The style or the script. Neither may end the element that it is in."""
    text = (HERE / name).read_text()
    assert "</s" not in text, name
    return text


def _allowed(text: str) -> str:
    """A source of a content security policy: this very text (CSP level 3, section 2.3.1)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def page(title: str, lead: Sequence[Html | None], sections: Sequence[Section]) -> str:
    """A whole page. lead: what stands before the contents."""
    style, script = _part("style.css"), _part("plots.js")
    policy = f"default-src 'none'; style-src {_allowed(style)}; script-src {_allowed(script)}; base-uri 'none'"
    contents = [
        el("li", el("a", s.title, href=f"#{s.ident}"), el("span", f" {s.mark}", class_="mark") if s.mark else None)
        for s in sections
    ]
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        Html(f"<style>{style}</style>"),
    )
    body = el(
        "body",
        el("a", "Skip to the contents of the page", href="#main", class_="skip"),
        el("header", el("h1", title), lead),
        el("nav", el("h2", "Contents", id="contents"), el("ol", contents), aria_labelledby="contents"),
        el("main", [_section(s) for s in sections], id="main", tabindex="-1"),
        el("footer", el("p", "This page is whole: it loads nothing and sends nothing.")),
        Html(f"<script>{script}</script>"),
    )
    return joined([Html("<!doctype html>\n"), el("html", head, body, lang="en"), Html("\n")])


def _section(section: Section) -> Html:
    heading = el("h2", section.title, id=section.ident)
    return el("section", heading, section.body, aria_labelledby=section.ident)
