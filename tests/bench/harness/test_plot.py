"""The plot lint: it passes what the harness draws and finds each fault that it is for."""

import copy
import functools
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corelane.bench.harness.figure import COLOURS, HOLLOW
from corelane.bench.harness.openloop import Curve, Point
from corelane.bench.harness.plot import Canvas, default_plot, lint
from corelane.bench.harness.seen import seen
from corelane.bench.harness.session import Session
from corelane.bench.harness.stops import Stop
from corelane.runtime.errors import CorelaneError

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'corelane[plot]'")


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    from matplotlib import pyplot  # not where tests are collected

    pyplot.close("all")


def renderer_of(figure: Any) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    return FigureCanvasAgg(figure).get_renderer()


@pytest.fixture
def file() -> None:
    """This test wants the file that a plot is written to."""


@pytest.fixture(autouse=True)
def _paint_only_into_files_that_are_wanted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the time of a plot goes into its pixels; what it says and where stands before."""
    if "file" not in request.fixturenames:
        from matplotlib.figure import Figure

        monkeypatch.setattr(Figure, "savefig", lambda *_, **__: None)


def document() -> dict[str, Any]:
    """One of its own."""
    return copy.deepcopy(measured())


@functools.cache
def measured() -> dict[str, Any]:
    with Session("test", seconds=0.05, progress=io.StringIO()) as s:
        for name, scale in (("ours", 1.0), ("theirs", 8.0)):
            points = [
                Point(r, r, 1000, 1000, p50_us=scale * r / 1e4, p99_us=scale * r / 1e3, p999_us=scale * r / 3e2)
                for r in (1e4, 1e5, 1e6)
            ]
            because = Stop("worker busy", "worker 100 % busy")
            s.curve(name, Curve(points, "0.4 % unanswered at 1,100,000 requests/s offered", because))
    return s.document()


MEASURED = "A processor, Linux 6.18, cores 0,1 of 2, clock tsc. No outlier is left out."


def canvas() -> Canvas:
    c = Canvas("title", message="one request and its reply", n=10)
    c.curve([1, 2, 3], [1, 2, 3], label="a")
    c.curve([1, 2, 3], [3, 2, 1], label="b", colour=1)
    c.axes[0].set_xlabel("load (requests/s)")
    c.axes[0].set_ylabel("latency (us)")
    c.axes[0].legend()
    c.figure.text(0, 0, "\n".join([c.captions[0], MEASURED, "a stops: worker busy.", "b ends at 3."]))
    return c


@pytest.mark.usefixtures("file")
def test_latency_curves_pass_and_are_written(tmp_path: Path) -> None:
    d = document()
    c = default_plot(d)
    c.finish(tmp_path / "x" / "y.png", d)
    assert (tmp_path / "x" / "y.png").read_bytes().startswith(b"\x89PNG")
    said = " ".join(t.get_text().replace("\n", " ") for t in c.figure.texts)
    assert "n = 6,000" in said
    assert "ours stops (×): 0.4 % unanswered at 1,100,000 requests/s offered: worker busy (worker 100 % busy)" in said
    assert [t.get_text() for t in c.axes[0].texts].count("worker busy") == 2
    assert d["settings"]["stops_because"]["ours"]["resource"] == "worker busy"
    assert {"ours p99", "theirs p99.9"} <= c.expect


@pytest.mark.parametrize("p50_us", [500.0, "inf"])
def test_the_cross_stands_at_the_load_that_was_not_carried(p50_us: float | str, tmp_path: Path) -> None:
    """And not at what was offered beyond; where its median is infinite, at the last point that can be drawn."""
    d = document()
    loads = [a for a in d["arms"] if a["name"] == "ours"]
    loads[1] |= {"answered": 900, "achieved_rps": 9e4, "p50_us": p50_us}
    loads[2] |= {"answered": 500, "achieved_rps": 5e5}
    c = default_plot(d)
    c.finish(tmp_path / "x.png", d)
    crosses = [text.xy for text in c.axes[0].texts if text.get_text() == "\u00d7"]
    at = (9e4, 500.0) if p50_us == 500.0 else (1e4, 1.0)
    assert crosses == [at, (1e6, 800.0)], "theirs carried its last load"
    assert next(text.xy for text in c.axes[0].texts if text.get_text() == "worker busy") == at


@pytest.mark.parametrize(("more", "said"), [([], "theirs, a third"), (["b", "c"], "4 arms")])
def test_arms_without_a_curve_are_named_above_the_axes(more: list[str], said: str, tmp_path: Path) -> None:
    d = document()
    names = ["theirs", "a third, curve", *more]
    d["settings"]["skipped"] = dict.fromkeys(names, "no load was carried")
    c = default_plot(d)
    c.finish(tmp_path / "x.png", d)
    assert c.axes[0].get_title(loc="right") == f"not measured (see below): {said}"


@pytest.mark.parametrize("loud", [False, True])
def test_a_plot_of_a_loud_machine_says_that_nothing_is_judged(loud: bool, tmp_path: Path) -> None:
    d = document()
    d["canary"] |= {"loud": loud, "worst_lost_fraction": 0.51, "worst_cpu": 1, "bound_lost_fraction": 0.05}
    c = default_plot(d)
    c.finish(tmp_path / "loud.png", d)
    said = " ".join(t.get_text().replace("\n", " ") for t in c.figure.texts)
    why = "Nothing here is judged: the canary lost 51 % of core 1, and 5 % is the most that is judged."
    assert (why in said) == loud
    assert ("not judged: the machine was too loud" in said) == loud


@pytest.mark.parametrize("last_us", [1.0, 1e6])
def test_the_resource_at_the_end_of_a_curve_stands_within_the_axes(last_us: float, tmp_path: Path) -> None:
    """The last point is the lowest of all, or the highest."""
    d = document()
    for arm in d["arms"]:
        for key in ("p50_us", "p99_us", "p999_us"):
            arm[key] = last_us if arm["offered_rps"] == 1e6 else 1e3
    c = default_plot(d)
    c.finish(tmp_path / "x.png", d)
    renderer = renderer_of(c.figure)
    words = [text for text in c.axes[0].texts if text.get_text() in ("worker busy", "ours", "theirs")]
    assert len(words) == 4
    for text in words:
        box = text.get_window_extent(renderer)
        assert c.axes[0].bbox.y0 <= box.y0
        assert box.y1 <= c.axes[0].bbox.y1


def test_percentiles_that_are_infinite_everywhere_are_said_and_not_drawn(tmp_path: Path) -> None:
    d = document()
    for arm in d["arms"]:
        if arm["name"] == "theirs":
            arm |= {"p50_us": "inf", "p99_us": "inf", "p999_us": "inf"}
        else:
            arm["p999_us"] = "inf"
    c = default_plot(d)
    c.finish(tmp_path / "x.png", d)
    said = " ".join(t.get_text().replace("\n", " ") for t in c.figure.texts)
    assert "theirs: p50, p99, p99.9 infinite at every load" in said
    assert "ours: p99.9 infinite at every load" in said
    assert {label for label in c.expect if label.startswith(("ours", "theirs"))} == {"ours p50", "ours p99"}


@pytest.mark.usefixtures("file")
def test_bars_pass(tmp_path: Path) -> None:
    with Session("test", seconds=0.05, progress=io.StringIO()) as s:
        s.arm("ours", yield_ns=12.0, n=5)
        s.arm("theirs", yield_ns=700.0, n=5)
    d = s.document()
    default_plot(d).finish(tmp_path / "bars.png", d)
    assert (tmp_path / "bars.png").exists()


def test_a_good_figure_has_no_findings() -> None:
    c = canvas()
    c.error_bars([1, 2, 3], [1, 2, 3], [0.1, 0.5, 0.1], [True, False, True])
    c.band([1, 2], [1, 1], [2, 3])
    c.axes[0].set_ylabel("p99 latency (us)")
    c.figure.text(0, 0, "Bands are quartiles, bars one standard error. Percentiles by nearest rank.")
    assert lint(c.figure, c.expect, c.curves) == []


@pytest.mark.parametrize(
    ("spoil", "finding"),
    [
        (lambda c: c.axes[0].set_xlim(0, 1000), "fills"),
        (lambda c: c.axes[0].set_ylim(1.5, 3), "outside"),
        (lambda c: c.axes[0].get_legend().remove(), "no legend"),
        (lambda c: c.axes[0].legend([c.axes[0].lines[0]], ["a"]), "series 'b' is not in the legend"),
        (lambda c: c.axes[0].plot([1, 2], [1, 2]), "without a label"),
        (lambda c: c.axes[0].set_xlabel(""), "no label"),
        (lambda c: c.axes[0].set_ylabel("latency"), "no unit"),
        (lambda c: c.expect.add("the third arm"), "missing"),
        (lambda c: c.figure.suptitle(""), "no title"),
        (lambda c: c.figure.texts[-1].set_text("n = 5"), "what a message is"),
        (lambda c: c.figure.texts[-1].set_text("a message is x"), "does not say n"),
        (lambda c: replace_text(c, "cores 0,1 of 2", "two cores"), "which machine and cores"),
        (lambda c: replace_text(c, "No outlier", "Nothing"), "what became of outliers"),
        (lambda c: c.axes[0].set_ylabel("p99 (us)"), "how percentiles are taken"),
        (lambda c: c.band([1, 2], [1, 1], [2, 3]), "what its bands are"),
        (lambda c: c.error_bars([1], [2], [0.5], [True]), "what its error bars are"),
        (lambda c: replace_text(c, "a stops", "a goes on"), "where 'a' stops"),
        (lambda c: replace_text(c, "b ends", "bb ends"), "where 'b' stops"),
        (lambda c: c.figure.text(0, 0.5, "ignore the outliers"), "ignore"),
        (lambda c: c.figure.text(0, 0.5, "The Y axis may be disregarded."), "ignore"),
        (lambda c: c.axes[0].set_ylabel("CDF (part)"), "whether it counts what is below or above"),
        (lambda c: c.axes[0].set_ylabel("fraction of requests (part of all)"), "counts what is below or above"),
        (lambda c: c.curve([1, 2, 3], [3, 2, 900], label="c", colour=2), "an outlier at 3, 900 has no number"),
        (lambda c: c.axes[0].text(1, 1, "small", fontsize=4), "'small' is written too small"),
        (lambda c: c.axes[0].plot([], [], label="c"), "is empty"),
        (lambda c: [c.axes[0].lines[1].set_linestyle("--"), c.axes[0].legend()], "'b' is too short to show its dashes"),
        (lambda c: c.curve([1, 2], [2, 3], label="c"), "'a' and 'c' look alike"),
        (lambda c: c.axes[0].set_ylabel(f"{'a long name, ' * 20}(us)"), "beyond the figure (bottom, top)"),
        (lambda c: c.axes[0].set_ylabel("a latency" + 12 * "\n" + "(us)"), "beyond the figure (left)"),
        (lambda c: [c.band([1, 2], [1, 1], [9, 9]), c.axes[0].set_ylim(0.5, 8)], "outside"),
        (lambda c: [c.error_bars([1], [2], [6], [True]), c.axes[0].set_ylim(0.5, 7)], "outside"),
        (lambda c: [c.error_bars([5], [2], [0], [False]), c.axes[0].set_xlim(0.5, 4)], "outside"),
    ],
)
def test_each_fault_is_found(spoil: Any, finding: str) -> None:
    c = canvas()
    spoil(c)
    assert any(finding in p for p in lint(c.figure, c.expect, c.curves))


def test_an_outlier_gets_its_number(tmp_path: Path) -> None:
    c = Canvas("t", message="m", n=1)
    c.curve([1, 2, 3, 4, 5, 6], [3, 2, 3, 2, 3, 900], label="a")
    c.axes[0].set_xlabel("load (1/s)")
    c.axes[0].set_ylabel("latency (us)")
    c.caption("All curves end at 6.")
    shown = c.complete(document())
    assert [(note.text, note.x, note.y) for note in shown.panels[0].notes] == [("900", 6, 900)]


def test_a_bar_too_short_to_be_seen_needs_its_number() -> None:
    c = Canvas("t", message="m", n=1)
    c.bars(["a", "b"], [1000.0, 1.0], ylabel="rate (1/s)")
    flat = [p for p in lint(c.figure) if "too short" in p]
    assert flat == []
    c.axes[0].texts[1].remove()
    assert any("1 bar(s) too short to be seen have no number" in p for p in lint(c.figure))


def test_what_a_plot_shows_can_be_read_back() -> None:
    c = canvas()
    c.error_bars([1, 2, 3], [1, 2, 3], [0.1, 0.5, 0.1], [True, False, True])
    c.band([1, 2], [1, 1], [2, 3])
    c.axes[0].axhline(2.5, color="#999999", linestyle="--", label="goal")
    (panel,) = seen(c.figure).panels
    assert [mark.kind for mark in panel.marks] == ["line", "line", "rule", "errors", "dots", "band"]
    assert panel.labels == ["a", "b", "goal"]
    assert panel.marks[0].points == ((1, 1), (2, 2), (3, 3))
    assert panel.marks[3].ends == ((1, 1.1), (2, 2.5), (3, 3.1))
    assert (panel.marks[4].points, panel.marks[4].marker, panel.marks[4].colour) == (((2, 2),), HOLLOW, COLOURS[0])
    assert (panel.x.label, panel.y.log) == ("load (requests/s)", False)


def test_bars_can_be_read_back() -> None:
    c = Canvas("t", message="m", n=1)
    c.bars(["a", "b", "c"], [1.0, 2.0, 3.0], ylabel="time (ns)", colours=[0, 1, 0])
    (panel,) = seen(c.figure).panels
    assert panel.y.names == {0.0: "a", 1.0: "b", 2.0: "c"}
    assert [(mark.kind, mark.colour, len(mark.points)) for mark in panel.marks] == [
        ("bars", COLOURS[0], 2),
        ("bars", COLOURS[1], 1),
    ]
    assert [note.text for note in panel.notes] == ["1", "2", "3"]


def replace_text(c: Canvas, old: str, new: str) -> None:
    text = c.figure.texts[-1]
    assert old in text.get_text()
    text.set_text(text.get_text().replace(old, new))


@pytest.mark.parametrize("said", ["Curves stop at 90 %, the last load asked for.", "x.\nThe curves end at the pause."])
def test_a_sentence_may_speak_for_all_curves(said: str) -> None:
    c = canvas()
    replace_text(c, "a stops: worker busy.", said)
    assert lint(c.figure, c.expect, c.curves) == []


def test_points_are_no_curve() -> None:
    c = canvas()
    c.curve([1, 2], [2, 2], label="points", style=" ")
    assert c.curves == {"a", "b"}


@pytest.mark.usefixtures("file")
def test_a_plot_with_findings_is_not_written(tmp_path: Path) -> None:
    d = document()
    c = default_plot(d)
    c.expect.add("an arm that nobody drew")
    with pytest.raises(CorelaneError, match="an arm that nobody drew"):
        c.finish(tmp_path / "bad.png", d)
    assert not (tmp_path / "bad.png").exists()


def test_names_that_lie_on_one_another_or_on_a_curve_are_parted(tmp_path: Path) -> None:
    d = document()
    loads = [a for a in d["arms"] if "offered_rps" in a]
    d["arms"] += [a | {"name": f"{a['name']} again"} for a in loads]
    d["settings"]["stops"] |= {f"{name} again": why for name, why in d["settings"]["stops"].items()}
    c = default_plot(d)
    c.finish(tmp_path / "parted.png", d)
    renderer = renderer_of(c.figure)
    boxes = [text.get_window_extent(renderer) for text in c._names]
    assert len(boxes) >= 2
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    drawn = [line.get_transform().transform_path(line.get_path()) for line in c.axes[0].lines]
    assert not any(path.intersects_bbox(box, filled=False) for path in drawn for box in boxes)


def test_names_of_arms_that_lie_on_one_another_are_found(tmp_path: Path) -> None:
    d, names = document(), [f"arm {i}" for i in range(60)]
    c = Canvas("t", message="m", n=1, size=(6, 6))
    c.bars(names, [1.0] * 60, ylabel="rate (1/s)")
    with pytest.raises(CorelaneError, match="names of arms lie on one another"):
        c.finish(tmp_path / "bars.png", d)
    c = Canvas("t", message="m", n=1, size=(6, 16))
    c.bars(names, [1.0] * 60, ylabel="rate (1/s)")
    c.finish(tmp_path / "bars.png", d)


def test_more_series_than_colours_are_told_apart_by_their_markers(tmp_path: Path) -> None:
    d = document()
    c = Canvas("t", message="m", n=1, size=(9, 9))
    for i in range(20):
        c.curve([1, 2], [i, i + 1], label=f"series {i}", colour=i)
    c.axes[0].set_xlabel("load (1/s)")
    c.axes[0].set_ylabel("latency (us)")
    c.caption("All curves end at 2.")
    c.finish(tmp_path / "many.png", d)
    assert len({(line.get_color(), line.get_marker()) for line in c.axes[0].lines}) == 20


@pytest.mark.parametrize("values", [[3.0, 4.0, 5.0], [0.5, 2e6, 0.0], [7.0, 7.0, 7.0], [0.0, 0.0, math.inf]])
def test_quantities_on_a_logarithmic_axis_are_points_within_it(values: list[float], tmp_path: Path) -> None:
    c = Canvas("t", message="m", n=1)
    c.bars(["a", "b", "c"], values, ylabel="time (ns)", log=True)
    c.finish(tmp_path / "points.png", document())
    assert not c.axes[0].patches
    low, high = c.axes[0].get_xlim()
    assert all(low <= x <= high for x, _ in c.axes[0].collections[0].get_offsets())


def test_panels_may_stand_in_rows(tmp_path: Path) -> None:
    c = Canvas("t", message="m", n=1, panels=3, rows=2, size=(9, 9))
    for panel in range(3):
        c.bars(["a", "b"], [1.0, 2.0], ylabel="time (ns)", panel=panel)
    c.finish(tmp_path / "rows.png", document())
    assert len(c.figure.axes) == 3
    assert c.axes[2].get_position().y0 < c.axes[0].get_position().y0


def test_what_is_infinite_is_said_not_to_be_drawn(tmp_path: Path) -> None:
    d = document()
    d["arms"][2]["p99_us"] = "inf"
    c = default_plot(d)
    c.finish(tmp_path / "x.png", d)
    assert "Points that are infinite (unanswered requests) or not known are not drawn." in c.captions


def test_the_legend_of_latency_curves_has_an_entry_an_arm_and_one_a_percentile(tmp_path: Path) -> None:
    d = document()
    c = default_plot(d)
    c.finish(tmp_path / "x.png", d)
    entries = [text.get_text() for text in c.axes[0].get_legend().get_texts()]
    assert entries[:5] == ["ours", "theirs", "p50", "p99", "p99.9"]
    assert all(entry.startswith("canary alone") for entry in entries[5:])


def test_bars_of_one_system_share_a_colour_and_ticks_are_read_at_a_glance(tmp_path: Path) -> None:
    d = document()
    c = Canvas("t", message="a thing", n=1)
    c.bars(["a", "b", "a too"], [100_000.0, 250_000.0, 60_000.0], ylabel="rate (1/s)", colours=[0, 1, 0])
    c.finish(tmp_path / "bars.png", d)
    first, second, third = (bar.get_facecolor() for bar in c.axes[0].patches)
    assert first == third != second
    assert [t.get_text() for t in c.axes[0].get_yticklabels()] == ["a", "b", "a too"]
    assert "200 k" in [t.get_text() for t in c.axes[0].get_xticklabels()]


def test_a_bar_without_end_is_a_word_and_no_length() -> None:
    c = Canvas("t", message="m", n=1)
    c.bars(["a", "b"], [2.0, math.inf], ylabel="p99 (us)")
    assert [bar.get_width() for bar in c.axes[0].patches] == [2.0, 0.0]
    assert [text.get_text() for text in c.axes[0].texts] == ["2", "inf"]
