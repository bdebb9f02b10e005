"""Pages in a browser: at three widths, light and dark, with mouse and keys. What they must not do: scroll sideways, ask
anybody for anything, complain."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, Tab, opened

from corelane.bench.harness.figure import COLOURS, Axis, Figure, Mark, Panel
from corelane.bench.harness.report.documents import Measured, report

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'corelane[plot]'")
from corelane.bench.harness.plot import Canvas, default_plot

WIDTHS = (360, 820, 1600)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    running = Browser(tmp_path_factory.mktemp("profile"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def path(measured: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with curves, and with bars of long names."""
    whole = Measured(failed={"kv": "it needs a second core"})
    canvas = default_plot(measured)
    whole.add(measured, canvas.complete(measured))
    canvas.close()
    names = [f"an arm with a name that is long, number {i}" for i in range(6)]
    bars = Canvas("bars", message="a thing", n=6, size=(12, 6))
    bars.bars(names, [1.0, 20.0, 300.0, 4.0, 5.0, 0.001], ylabel="p99 latency (us)")
    whole.add(measured, bars.complete(measured))
    bars.close()
    made = tmp_path_factory.mktemp("page") / "index.html"
    made.write_text(report(whole, "corelane bench all"))
    return made


WIDEST = """[...document.querySelectorAll("body *")]
    .filter(e => !e.closest(".scroll, pre, .skip") && e.getBoundingClientRect().right > innerWidth + 0.5)
    .map(e => e.outerHTML.slice(0, 100))"""
BEYOND = """[...document.querySelectorAll(".view svg")].flatMap(svg => {
    const all = svg.getBoundingClientRect();
    return [...svg.querySelectorAll("text")].filter(t => {
        const box = t.getBoundingClientRect();
        return box.left < all.left - 1 || box.right > all.right + 1 || box.bottom > all.bottom + 1;
    }).map(t => t.textContent);
})"""
UNNAMED = """[...document.querySelectorAll("button, [role=img], [role=group], [role=region], nav, section")]
    .filter(e => !(e.getAttribute("aria-label") || e.textContent
        || document.getElementById(e.getAttribute("aria-labelledby"))?.textContent))
    .map(e => e.outerHTML.slice(0, 100))"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_fits_and_is_whole(browser: Browser, path: Path, width: int, dark: bool) -> None:
    with opened(browser, path, width, dark) as tab:
        assert tab.evaluate(WIDEST) == [], "nothing reaches beyond the window"
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate(BEYOND) == [], "no word of a plot is cut off"
        assert tab.requests == [path.as_uri()]
        assert tab.errors == []
        drawn = tab.evaluate('[...document.querySelectorAll(".view svg")].map(s => s.querySelectorAll("path").length)')
        assert len(drawn) == 2
        assert min(drawn) > 6
        ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")


def test_landmarks_names_and_tables(browser: Browser, path: Path) -> None:
    with opened(browser, path, WIDTHS[1]) as tab:
        count = tab.evaluate('["header", "nav", "main", "footer", "h1"].map(n => document.querySelectorAll(n).length)')
        assert count == [1] * 5
        assert tab.evaluate(UNNAMED) == []
        assert tab.evaluate('[...document.querySelectorAll("table")].every(t => t.caption?.textContent)')
        assert tab.evaluate('[...document.querySelectorAll("th")].every(t => t.scope)')
        there = '[...document.querySelectorAll("a[href]")].every(a => document.querySelector(a.getAttribute("href")))'
        assert tab.evaluate(there), "each link leads somewhere in the page"
        levels = tab.evaluate('[...document.querySelectorAll("h1, h2, h3, h4")].map(h => Number(h.tagName[1]))')
        assert all(b - a <= 1 for a, b in itertools.pairwise(levels)), "no level is left out"
        small = '[...document.querySelectorAll("main button")].filter(b => b.offsetHeight && b.offsetHeight < 24)'
        assert tab.evaluate(f"{small}.length") == 0, "WCAG 2.2, 2.5.8"


NARROW = """[...document.querySelectorAll("td.long, tbody th.long")]
    .filter(e => e.offsetParent && e.getBoundingClientRect().width < 0.5 * 360).map(e => e.outerHTML.slice(0, 100))"""
CAPTIONS = """[...document.querySelectorAll("caption span")]
    .filter(e => e.getBoundingClientRect().right > innerWidth).map(e => e.textContent)"""


def test_tables_that_scroll_can_be_read(browser: Browser, path: Path) -> None:
    """Where there is little room, words are not put below each other one by one, and a table's name stays."""
    with opened(browser, path, WIDTHS[0]) as tab:
        assert tab.evaluate('document.querySelectorAll("td.long").length') > 0
        assert tab.evaluate(NARROW) == []
        assert tab.evaluate(CAPTIONS) == []
        scrolled = '(e => { e.scrollLeft = 200; return e.querySelector("caption span").getBoundingClientRect().left; })'
        wide = '[...document.querySelectorAll(".scroll")].find(e => e.scrollWidth > e.clientWidth + 200)'
        assert tab.evaluate(f"{scrolled}({wide})") >= 0


def test_a_scale_has_two_numbers_and_the_legend_shows_the_markers(
    browser: Browser, measured: dict[str, Any], tmp_path: Path
) -> None:
    """From 0.1 to 0.9 there is one multiple of 0.5."""
    marks = [
        Mark("line", ((0.2, 1.0), (0.8, 3.0)), "a", COLOURS[0], "-", "s"),
        Mark("line", ((0.2, 3.0), (0.8, 2.0)), "b", COLOURS[1], "--", "^"),
    ]
    panel = Panel(Axis("load (1)", 0.05, 0.95), Axis("p99 (us)", 0.5, 4.0), marks, ["a", "b"])
    whole = Measured()
    texts = (
        "n = 10; a message is a request.",
        "A processor, Linux 6.18, cores 0,1 of 2, clock tsc.",
        "No outlier is left out. Percentiles by nearest rank. Curves end at 3.",
    )
    whole.add(measured, Figure("a title", texts, [panel], ["a"], ["a"]))
    made = tmp_path / "index.html"
    made.write_text(report(whole, "corelane bench all"))
    with opened(browser, made, WIDTHS[0]) as tab:
        below = '[...document.querySelectorAll(".view svg text[text-anchor=middle]")].map(t => t.textContent)'
        assert len(tab.evaluate(below)) >= 2
        shapes = '[...document.querySelectorAll(".legend svg path.fill")].map(p => p.getAttribute("d"))'
        square, triangle = tab.evaluate(shapes)
        assert square != triangle
        assert tab.errors == []


def first_curve(tab: Tab) -> str:
    path = tab.evaluate('document.querySelector(".view svg path.stroke").getAttribute("d")')
    assert isinstance(path, str)
    return path


def test_keys_and_buttons_zoom(browser: Browser, path: Path) -> None:
    with opened(browser, path, WIDTHS[1]) as tab:
        whole = first_curve(tab)
        tab.evaluate('document.querySelector(".view").focus()')
        tab.key("+")
        near = first_curve(tab)
        assert near != whole
        tab.key("ArrowRight")
        assert first_curve(tab) not in (near, whole)
        tab.key("0")
        assert first_curve(tab) == whole
        tab.evaluate("document.querySelector('[data-do=\"in\"]').click()")
        assert first_curve(tab) == near, "both go to the middle"
        tab.evaluate("document.querySelector('[data-do=\"out\"]').click()")
        assert first_curve(tab) == whole
        tab.key("-")
        assert first_curve(tab) == whole, "there is nothing beyond the whole"
        assert tab.errors == []


def test_the_mouse_zooms_and_tells(browser: Browser, path: Path) -> None:
    with opened(browser, path, WIDTHS[1]) as tab:
        whole = first_curve(tab)
        box = tab.evaluate(
            '(() => { const s = document.querySelector(".view svg"); s.scrollIntoView({block: "center"});'
            " const b = s.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()"
        )
        left, top, wide, high = box
        start, end = (left + 0.3 * wide, top + 0.3 * high), (left + 0.7 * wide, top + 0.7 * high)
        tab.mouse(("mouseMoved", *start), ("mousePressed", *start), ("mouseMoved", *end), ("mouseReleased", *end))
        assert first_curve(tab) != whole
        tab.evaluate("document.querySelector('[data-do=\"all\"]').click()")
        assert first_curve(tab) == whole
        x, y = map(float, re.findall(r"[\d.]+", whole)[:2])
        tab.mouse(("mouseMoved", left + x, top + y))
        told = tab.evaluate('document.querySelector(".tools output").textContent')
        assert told == "ours p50: 10 k requests/s, 1 us"
        assert tab.errors == []


def test_a_series_is_switched_off(browser: Browser, path: Path) -> None:
    count = 'document.querySelectorAll(".view svg path.stroke").length'
    with opened(browser, path, WIDTHS[1]) as tab:
        before = tab.evaluate(count)
        switch = 'document.querySelector("[data-series]")'
        tab.evaluate(f"{switch}.click()")
        assert tab.evaluate(count) == before - 1
        assert tab.evaluate(f'{switch}.getAttribute("aria-pressed")') == "false"
        tab.evaluate(f"{switch}.click()")
        assert tab.evaluate(count) == before


def test_a_plot_follows_the_width(browser: Browser, path: Path) -> None:
    with opened(browser, path, WIDTHS[2]) as tab:
        tab.call("Emulation.setDeviceMetricsOverride", width=WIDTHS[0], height=900, deviceScaleFactor=1, mobile=False)
        tab.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        sizes = tab.evaluate(
            '[...document.querySelectorAll(".view svg")].map(s => [s.viewBox.baseVal.width, s.clientWidth])'
        )
        assert all(drawn == shown for drawn, shown in sizes)
        assert tab.evaluate(WIDEST) == []


def test_without_a_script_the_numbers_are_there(browser: Browser, path: Path) -> None:
    with opened(browser, path, WIDTHS[0]) as tab:
        tab.call("Emulation.setScriptExecutionDisabled", value=True)
        tab.reload()
        document = tab.call("DOM.getDocument", depth=0)["root"]["nodeId"]
        found = tab.call("DOM.querySelectorAll", nodeId=document, selector=".plot noscript p")["nodeIds"]
        assert len(found) == 2
        assert tab.errors == []


def test_a_strangers_words_run_nothing(browser: Browser, path: Path) -> None:
    """The policy allows the page's own script and style by their digest, and nothing else."""
    hostile = path.with_name("hostile.html")
    hostile.write_text(path.read_text().replace("</main>", "<script>document.title = 'theirs'</script></main>"))
    with opened(browser, hostile, WIDTHS[1]) as tab:
        assert tab.evaluate("document.title") == "corelane bench all"
        assert any("Content Security Policy" in error for error in tab.errors)
