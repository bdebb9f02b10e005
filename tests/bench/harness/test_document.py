"""Documents: shape, figures against goals, writing and refusing."""

import io
import json
import math
import os
from pathlib import Path

import pytest

from corelane.bench import registry
from corelane.bench.harness import document as doc
from corelane.bench.harness import markdown, table
from corelane.bench.harness import session as session_module
from corelane.bench.harness.goals import GOALS
from corelane.bench.harness.jitter import Gaps
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session
from corelane.runtime.errors import CorelaneError

ISSUE_TABLE = {
    "echo.p50_over_cacheline",
    "echo.rps_per_core",
    "kv.get_rps_per_core",
    "kv.over_memcached_udp",
    "afxdp.p50_over_reflector",
    "afxdp.linux_spin_over_ours",
    "afxdp.linux_block_over_ours",
    "threads.yield_ns",
    "threads.spawn_join_ns",
    "threads.mutex_ns",
    "threads.condvar_ns",
    "threads.pthread_over_ours",
    "handlers.numba_over_c",
    "handlers.python_rps",
    "handlers.python_over_asyncio",
    "isolation.flood_over_silent",
    "memory.used_over_needed",
    "idle.busy_fraction",
}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that takes nothing, or figures would not be judged."""
    monkeypatch.setattr(session_module, "watch", lambda cpus, seconds: [Gaps(cpu, seconds, 1) for cpu in cpus])


def session(**kwargs: object) -> Session:
    return Session("test", seconds=0.05, progress=io.StringIO(), **kwargs)  # type: ignore[arg-type]


def test_a_benchmark_that_pins_itself_leaves_all_cores_to_the_next() -> None:
    before = os.sched_getaffinity(0)
    with session():
        os.sched_setaffinity(0, {min(before)})
    assert os.sched_getaffinity(0) == before


def test_every_promised_figure_is_declared() -> None:
    assert set(GOALS) >= ISSUE_TABLE


def test_benchmarks_set_only_declared_figures_and_no_figure_twice() -> None:
    setters: dict[str, str] = {}
    for entry in registry.entries().values():
        for figure in entry.figures:
            assert figure in GOALS, f"{entry.name} names {figure}"
            if entry.name not in registry.SHOWS:
                assert setters.setdefault(figure, entry.name) == entry.name


def test_arms_are_interleaved_with_the_canary_between() -> None:
    order: list[str] = []
    with session() as s:
        before = s.canary.slices
        got = s.interleave({"a": lambda: order.append("a") or len(order), "b": lambda: order.append("b")}, rounds=3)
        assert s.canary.slices == before + 3
    assert order == ["a", "b"] * 3
    assert got == {"a": [1, 3, 5], "b": [None, None, None]}
    assert s.canary.slices == before + 4


def test_document_has_the_shape(tmp_path: Path) -> None:
    with session() as s:
        s.point("ours", Point(1000, 1000, 10, 9, p50_us=1.0, p999_us=float("inf"), seconds=0.1))
        s.ratio_figure("kv.over_memcached_udp", [100.0, 120.0], [10.0, 10.0])
        s.skip("theirs", "it is not installed")
    s.finish(["kv.over_memcached_udp", "kv.get_rps_per_core"])
    document = s.document()
    assert list(document) == list(doc.MEMBERS)
    assert doc.problems(document) == []
    assert document["figures"]["kv.over_memcached_udp"] == {
        "value": 11.0,
        "goal": 10.0,
        "sense": "at least",
        "met": True,
        "runs": [10.0, 12.0],
    }
    missing = document["figures"]["kv.get_rps_per_core"]
    assert (missing["value"], missing["met"]) == (None, None)
    assert "theirs: it is not installed" in missing["reason"]
    row = document["arms"][0]
    assert row["p999_us"] == "inf"
    for key in ("offered_rps", "achieved_rps", "p50_us", "p90_us", "p99_us", "sent", "answered", "late", "dropped"):
        assert key in row
    path = tmp_path / "deep" / "x.json"
    doc.write(document, path)
    assert doc.read(path) == json.loads(path.read_text())
    text = table.report(document)
    assert "kv.over_memcached_udp" in text
    assert "skipped theirs: it is not installed" in text
    page = markdown.report([document])
    assert "not taken: theirs" in page
    assert all(f"`{name}`" in page for name in GOALS)


def test_an_undeclared_figure_is_refused() -> None:
    with session() as s, pytest.raises(KeyError, match=r"goals\.py"):
        s.figure("echo.invented", 1.0)


def test_a_figure_without_value_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="reason"):
        doc.figure("echo.rps_per_core", None, [], None)


def test_wrong_documents_are_named(tmp_path: Path) -> None:
    with session() as s:
        s.figure("echo.rps_per_core", 6e6)
    good = s.document()
    for change, finding in (
        ({"figures": {"echo.rps_per_core": good["figures"]["echo.rps_per_core"] | {"goal": 1}}}, "another goal"),
        ({"figures": {"echo.rps_per_core": good["figures"]["echo.rps_per_core"] | {"met": False}}}, "wrongly"),
        ({"figures": {"echo.invented": good["figures"]["echo.rps_per_core"]}}, "not declared"),
        ({"arms": [{}]}, "no name"),
        ({"more": 1}, "unknown member"),
        ({"arms": None}, "'arms' is none of its kind"),
        ({"figures": []}, "'figures' is none of its kind"),
    ):
        bad = good | change
        assert any(finding in p for p in doc.problems(bad)), finding
        with pytest.raises(ValueError, match="not a document"):
            doc.write(bad, tmp_path / "bad.json")
    assert not (tmp_path / "bad.json").exists()


@pytest.mark.parametrize(
    ("text", "finding"),
    [("", "not JSON"), ("[" * 100_000, "not JSON"), ("[1]", "not a JSON object"), ("{}", "'bench' is missing")],
)
def test_reading_says_what_is_wrong(tmp_path: Path, text: str, finding: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(CorelaneError, match=finding):
        doc.read(path)
    with pytest.raises(CorelaneError, match="No such file"):
        doc.read(tmp_path / "absent.json")


def test_met_follows_the_sense() -> None:
    assert GOALS["echo.rps_per_core"].met(5e6)
    assert not GOALS["echo.rps_per_core"].met(4.9e6)
    assert GOALS["threads.yield_ns"].met(40)
    assert not GOALS["threads.yield_ns"].met(41)


def test_what_is_infinite_stays_json() -> None:
    with session() as s:
        s.arm("x", rate=float("inf"), parts=[1.0, float("nan")])
        s.ratio_figure("kv.over_memcached_udp", [float("inf")] * 3, [1.0] * 3)
        s.ratio_figure("echo.p50_over_cacheline", [float("inf"), 2.0, 3.0], [1.0] * 3)
    document = s.document()
    json.dumps(document, allow_nan=False)
    assert document["arms"][0] == {"name": "x", "rate": "inf", "parts": [1.0, None]}
    assert document["figures"]["kv.over_memcached_udp"]["value"] is None
    assert "unanswered" in document["figures"]["kv.over_memcached_udp"]["reason"]
    assert document["figures"]["echo.p50_over_cacheline"]["runs"] == ["inf", 2.0, 3.0]
    assert "2 .. inf" in table.report(document)
    assert "2 .. inf" in markdown.report([document])


def test_a_page_has_each_benchmarks_own_values_and_its_series() -> None:
    with session() as s:
        for load in (1000.0, 2000.0):
            row = s.point("ours", Point(load, load, 10, 10, p50_us=1.0, seconds=0.1))
            row |= {"work_per_s": 7.5 * load, "window_us": [0.0, 100.0], "window_p99_us": [3.25, math.inf]}
        s.arm("job alone", work_per_s=99.5)
        s.settings["series"] = {"along": "window_us", "of": ["window_p99_us"]}
    page = markdown.arms(s.document())
    loads, own, others, series = page.split("\n\n")
    assert "| arm | offered/s | achieved/s |" in loads
    assert "work_per_s" not in loads
    assert own.splitlines()[0] == "| arm | offered/s | work_per_s |"
    assert own.splitlines()[-1] == "| ours | 2000 | 15,000 |"
    assert others.splitlines()[-1] == "| job alone | 99.5 |"
    assert series.splitlines()[0] == "| window_us | ours: window_p99_us | ours: window_p99_us |"
    assert [line.split(" | ")[:2] for line in series.splitlines()[2:]] == [["| 0", "3.25"], ["| 100", "inf"]]


def test_a_table_of_the_benchmarks_own_is_in_all_reports() -> None:
    with session() as s:
        s.table("Work by load", ["arm", "0.1"], [["ours", 1234567.0], ["theirs", "0.5 (9)"]])
    document = s.document()
    text = table.report(document)
    assert text.index("Work by load:") < text.index("canary (")
    assert [line.split() for line in text.splitlines() if line.startswith("  ours")] == [["ours", "1,234,567"]]
    page = markdown.arms(document)
    assert page.splitlines()[0] == "Work by load:"
    assert page.splitlines()[-2:] == ["| ours | 1,234,567 |", "| theirs | 0.5 (9) |"]
    assert "tables" not in session().document()["settings"]


def test_arms_that_have_other_values_get_another_table() -> None:
    with session() as s:
        for n in (1, 2):
            s.arm(f"theory {n}", n=n, error=0.5, servers=n)
        s.arm("box", n=9, box_us=1.5, model_us=2.5, kind="echo")
        s.arm("theory 3", n=3, error=0.25, servers=None)
        s.arm("nothing")
    one, other = markdown.arms(s.document()).split("\n\n")
    assert one.splitlines()[0] == "| arm | n | error | servers |"
    assert [line.split(" | ")[0] for line in one.splitlines()[2:]] == ["| theory 1", "| theory 2", "| theory 3"]
    assert one.splitlines()[-1] == "| theory 3 | 3 | 0.25 | - |"
    assert other.splitlines()[0] == "| arm | n | box_us | model_us | kind |"
    text = table.report(s.document())
    assert [line.split() for line in text.splitlines() if "arm  " in line] == [
        ["arm", "n", "error", "servers"],
        ["arm", "n", "box_us", "model_us", "kind"],
    ]


def test_what_stands_beside_a_figure_is_shown_with_it() -> None:
    with session() as s:
        s.figure("colocate.low_p99_added_us", 3.0, beside={"over all requests": 1024.0})
        s.figure("colocate.half_batch_over_core_left", None, reason="too slow", beside={"the share all the same": 0.5})
    document = s.document()
    assert doc.problems(document) == []
    for text in (markdown.figures([document]), table.figure_table(document["figures"])):
        told = [line for line in text.splitlines() if "over all requests: 1024" in line or "the same: 0.5" in line]
        assert len(told) == 2
        assert not any("too slow" in line or "3" in line for line in told), "in lines of their own"
        assert "too slow" in text


def test_a_figure_without_a_goal_is_told_and_not_judged() -> None:
    with session() as s:
        s.figure("stealing.skewed_gain", 0.3, runs=[0.3, 1.2])
    document = s.document()
    assert doc.problems(document) == []
    assert (
        document["figures"]["stealing.skewed_gain"] | {"goal": None, "met": None}
        == document["figures"]["stealing.skewed_gain"]
    )
    assert "| none | 0.3 | 0.3 .. 1.2 | no goal |" in markdown.figures([document])
    assert "no goal" in table.figure_table(document["figures"])
    document["figures"]["stealing.skewed_gain"] |= {"met": True}
    assert any("has no goal" in p for p in doc.problems(document))


def test_runs_on_both_sides_of_a_goal_are_told() -> None:
    with session() as s:
        s.figure("echo.rps_per_core", 6e6, runs=[6e6, 4e6, math.inf])
        s.figure("threads.yield_ns", 41.0, runs=[41.0, 42.0])
        s.figure("threads.mutex_ns", 21.0, runs=[19.0, 21.0, 22.0])
    document = s.document()
    page, text = markdown.figures([document]), table.figure_table(document["figures"])
    assert "| yes, met in 2 of 3 runs |" in page
    assert "| no |" in page
    assert "NOT MET, missed in 2 of 3 runs" in text


def test_a_report_names_the_figures_that_it_has_not() -> None:
    with session() as s:
        s.figure("echo.rps_per_core", 6e6)
        s.figure("threads.yield_ns", None, reason="too slow")
    page = markdown.figures([s.document()])
    rows, missing = page.split("Not in these files: ")
    had = [line.split("`")[1] for line in rows.splitlines() if "`" in line]
    assert had == ["echo.rps_per_core", "threads.yield_ns"]
    assert "not taken: too slow" in rows
    assert set(missing.rstrip(".").replace("`", "").split(", ")) == GOALS.keys() - set(had)


def test_a_report_without_any_figure_says_so() -> None:
    with Session("canary", seconds=0.05, progress=io.StringIO()) as s:
        s.arm("core 0", longest_us=1.0)
    page = markdown.report([s.document()])
    assert "These files have no figure." in page
    assert "| figure |" not in page


def test_every_declared_figure_has_a_benchmark() -> None:
    setters = [e for e in registry.entries().values() if e.name not in registry.SHOWS]
    assert {figure for e in setters for figure in e.figures} == set(GOALS)
    assert [name for name in GOALS if registry.bench_of_figure(name) is None] == []


def test_a_benchmark_is_found_under_its_figures_name_too():
    assert registry.find("raft-fail") == registry.find("raft_fail") == registry.entries()["raft_fail"]
