"""The flame graph of slow requests against ordinary ones (flame.py), and `corelane trace --profile` over it."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from corelane.cli.main import main
from corelane.cli.trace import flame
from corelane.libos.trace.profile import Part, Profile

SLOW = Part(10, 120, {("main", "a"): 60.0, ("main", "b", "c"): 30.0, ("main",): 10.0})
ORDINARY = Part(990, 50, {("main", "a"): 1.0, ("main", "d"): 2.0, ("main",): 10.0})
PROFILE = Profile("UDP 9000", 100.0, SLOW, ORDINARY, 400)


def test_a_tree_has_each_function_in_its_place() -> None:
    root = flame.tree(PROFILE)
    assert (root.slow_us, root.ordinary_us) == (100, 13)
    main = root.calls["main"]
    assert {name: (node.slow_us, node.ordinary_us) for name, node in main.calls.items()} == {
        "a": (60, 1),
        "b": (30, 0),
        "d": (0, 2),
    }
    assert main.calls["b"].more == 1
    assert main.calls["a"].more == pytest.approx(59 / 60)
    assert root.depth == 4


def test_boxes_lie_within_what_called_them() -> None:
    found = list(flame.boxes(flame.tree(PROFILE)))
    by_name = {box.node.name: box for box in found}
    assert set(by_name) == {"all", "main", "a", "b", "c"}, "what takes no time in slow ones is not drawn"
    assert by_name["a"].width == pytest.approx(0.6 * flame.WIDTH)
    for outer, inner in (("all", "main"), ("main", "a"), ("main", "b"), ("b", "c")):
        a, b = by_name[outer], by_name[inner]
        assert a.left <= b.left
        assert b.left + b.width <= a.left + a.width + 1e-6
        assert b.row == a.row + 1
    assert by_name["a"].left + by_name["a"].width <= by_name["b"].left + 1e-6


def test_the_page_is_whole_and_says_in_a_table_what_it_draws() -> None:
    odd = Profile("TCP <80>", 1.0, Part(1, 1, {("<b>&",): 5.0}), Part(1, 0, {}), 1)
    text = flame.page_of([PROFILE, odd], "Slow & ordinary")
    assert text.startswith("<!doctype html>")
    assert "default-src 'none'" in html.unescape(text[:500])
    text = text[text.index("<body>") : text.rindex("<script>")]
    assert not re.search(r"(src|href)=\"(?!#)", text), "it asks nobody for anything"
    assert "&lt;b&gt;&amp;" in text
    assert "<b>&" not in text
    assert text.count("<svg viewBox") == text.count("</svg>") == 2
    assert "a: 60.0 us of a slow request, 1.0 us of an ordinary one" in text
    assert "n = 10 requests of 100.0 us or more (120 samples) against 990 others (50)" in text
    assert re.search(r"<th scope=\"row\">c</th>", text)


def test_slow_ones_without_a_sample_have_no_plot() -> None:
    empty = Profile("UDP 1", 5.0, Part(10, 0, {}), Part(1000, 0, {}), 0)
    text = flame.page_of([empty], "t")
    assert "<svg viewBox" not in text
    assert "No plot: nothing was sampled while one of the slow ones" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--flame", "x.html", "--pid", "1"), "give --profile S, too"),
        (("--profile", "1"), "give --app NAME or --pid PID, too"),
        (("--blame",), "give --app NAME or --pid PID, too"),
        (("--otlp", "http://127.0.0.1:4318"), "give --app NAME or --pid PID, too"),
        (("last", "--otlp", "http://127.0.0.1:4318"), "give --app NAME or --pid PID, too"),
        (("--folder", "x"), "corelane trace last --folder DIR"),
    ],
)
def test_what_would_do_nothing_is_said(words: tuple[str, ...], said: str, capsys: Any) -> None:
    assert main(["trace", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_server_is_profiled(start: Any, tmp_path: Path, capsys: Any) -> None:
    run = start("run", "spin", "--nic", "loadgen:echo,rate=5e3,seconds=100,port=9001", "--trace", "full", "--json")
    run.event("serving")
    out = tmp_path / "flame.html"
    words = ["trace", "--pid", str(run.process.pid), "--profile", "1", "--json", "--flame", str(out)]
    code = main(words)
    said = capsys.readouterr()
    if code and "perf_event_paranoid" in said.err:
        pytest.skip(said.err)
    assert code == 0, said.err
    document = json.loads(said.out)
    assert document["samples"] > 0
    assert document["flame"] == str(out)
    assert "UDP 9001" in out.read_text()
    assert run.stop() == 0
