"""What a page says of a plot, and gives to the script that draws it; a plot that breaks the rules is in no page."""

from __future__ import annotations

import copy
import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest

from corelane.bench.harness.figure import COLOURS, Axis, Figure, Mark, Note, Panel
from corelane.bench.harness.report.drawn import drawn
from corelane.bench.harness.report.markup import Numbered
from corelane.runtime.errors import CorelaneError

SAID = (
    "n = 10; a message is a request.",
    "A processor, Linux 6.18, cores 0,1 of 2, clock tsc.",
    "No outlier is left out. Percentiles by nearest rank. Curves end at 3.",
)


def figure(**changes: Any) -> Figure:
    marks = [
        Mark("line", ((1.0, 1.0), (3.0, 3.0)), "a", COLOURS[0], "-", "o"),
        Mark("line", ((1.0, 3.0), (3.0, math.inf)), "b <i>", "#123456", "--"),
        Mark("rule", ((2.0, math.nan),), "goal", "#999999", ":"),
    ]
    panel = Panel(Axis("load (1/s)", 0.5, 3.5), Axis("p99 (us)", 0.5, 4.0), marks, ["a", "b <i>", "goal"])
    return Figure("a title", SAID, [replace(panel, **changes)], ["a"], ["a"])


def script(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json">(.*?)</script>', text)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_the_script_gets_every_mark() -> None:
    text = drawn(figure(notes=[Note("a", 1.0, 1.0), Note("12", 3.0, 3.0)]), Numbered())
    data = script(text)
    assert [m["kind"] for m in data["marks"]] == ["line", "line", "rule"]
    assert [m["series"] for m in data["marks"]] == [0, 1, 2]
    assert [m["paint"] for m in data["marks"]] == ["p0", "pn", "pn"]
    assert data["marks"][1]["points"] == [[1.0, 3.0], [3.0, None]], "what is infinite has no place"
    assert data["notes"] == [{"text": "12", "x": 3.0, "y": 3.0}], "names of series are in the legend"


def test_everything_that_is_drawn_is_in_a_table_and_a_legend() -> None:
    text = drawn(figure(), Numbered())
    assert text.count('aria-pressed="true"') == 3
    assert "b &lt;i&gt;" in text
    for said in SAID:
        assert f"<li>{said}</li>" in text
    body = text.split("<tbody>")[1].split("</tbody>")[0]
    assert body.count("<tr>") == 5
    assert '<td class="number">inf<' in body
    assert ">all<" in body, "a rule goes through the whole panel"


def test_bars_have_the_numbers_that_stand_at_them() -> None:
    bars = Mark("bars", ((0.0, -0.3), (0.0, 0.7)), None, COLOURS[1], ends=((5.0, 0.3), (7.0, 1.3)))
    names = {0.0: "ours", 1.0: "theirs"}
    panel = Panel(Axis("p99 (us)", 0, 9), Axis("arm", 1.5, -0.5, names=names), [bars], notes=[Note("5.01", 5, 0)])
    text = drawn(Figure("bars", SAID, [panel], ["ours"]), Numbered())
    assert re.findall(r'<th scope="row">(\w+)</th><td class="number">([\d.]+)</td>', text) == [
        ("ours", "5.01"),
        ("theirs", "7"),
    ]
    assert "legend" not in text


def test_a_plot_that_breaks_the_rules_is_in_no_page() -> None:
    bad = copy.copy(figure(x=Axis("load", 0.5, 3.5)))
    with pytest.raises(CorelaneError, match="'load' has no unit"):
        drawn(bad, Numbered())
