"""Numbers that a page takes from a record of the notebook are that record's, rounded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from corelane.bench.harness.goals import GOALS
from corelane.bench.registry import entries

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs" / "notebook"
XEON, EPYC, DISK = "2026-11-results-intel.md", "2026-11-results-epyc.md", "2026-11-storage-and-raft-epyc.md"
LATER = "2026-11-ground-and-loss-epyc.md"
STORED = ("log.", "raft")  # figures that DISK has of the EPYC
ONE_LINK = {  # figure: what the note says of the same over one link
    "kv.over_memcached_udp": "times memcached's GETs/s",
    "handlers.python_over_asyncio": "times asyncio's answers/s",
}
RENAMED = {"colocate.half_batch_over_core_left": "colocate.half_batch_share"}  # figure: its name in the records


def tables(page: Path, first: str) -> list[list[str]]:
    """The rows, as cells, of all tables of a page whose first column is called so."""
    rows: list[list[str]] = []
    inside = False
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        inside = bool(cells) and (inside or cells[0] == first)
        if inside and cells[0] != first and not set(cells[0]) <= set("-:"):
            rows.append(cells)
    return rows


def number(text: str) -> float:
    """The number in a cell, without bold, unit, star and separators."""
    found = re.search(r"-?[\d,]+(?:\.\d+)?", text)
    assert found, text
    return float(found[0].replace(",", ""))


def same(shown: str, recorded: str) -> bool:
    """Whether a cell is a record's number, rounded to as many digits as it shows."""
    digits = re.search(r"\.(\d+)", shown)
    return abs(number(shown) - number(recorded)) <= 0.51 * 10.0 ** -(len(digits[1]) if digits else 0)


def figures(record: str) -> dict[str, str]:
    """The value of each figure of a record."""
    return {row[0].strip("`"): row[3] for row in tables(NOTEBOOK / record, "figure")}


def arms(record: str) -> dict[str, str]:
    """The p50 of each move of a core in a record."""
    section = (NOTEBOOK / record).read_text().partition("\n## handoff\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()]
    return {row[0]: row[3] for row in reversed(rows) if len(row) > 4}


def over_one_link(record: str, figure: str) -> str:
    told = re.search(rf"the same generator: ([\d.]+) .*{ONE_LINK[figure]}", (NOTEBOOK / record).read_text())
    assert told
    return told[1]


def test_newest_figures_are_those_of_the_records() -> None:
    xeon, epyc = figures(XEON), figures(EPYC)
    epyc |= {name: value for name, value in figures(DISK).items() if name.startswith(STORED)}
    rows = tables(ROOT / "docs" / "performance.md", "figure")
    above, compared = "", 0
    for name, _, on_xeon, on_epyc in rows:
        figure = RENAMED.get(name.strip("`"), name.strip("`"))
        if figure in xeon:
            wanted = xeon[figure], epyc[figure]
        else:
            assert name == "the same, both on a veth pair"
            wanted = over_one_link(XEON, above), over_one_link(EPYC, above)
        assert same(on_xeon, wanted[0]), (name, on_xeon, wanted)
        assert same(on_epyc, wanted[1]), (name, on_epyc, wanted)
        above, compared = figure, compared + 1
    assert compared == len(xeon) + len(ONE_LINK)


def test_later_figures_are_those_of_their_record() -> None:
    recorded = figures(LATER)
    rows = tables(ROOT / "docs" / "performance.md", "later figure")
    assert {name.strip("`") for name, *_ in rows} == set(recorded)
    for name, goal, value in rows:
        figure = name.strip("`")
        assert same(value, recorded[figure]), (name, value, recorded[figure])
        declared = GOALS[figure]
        assert number(goal) == declared.goal
        assert goal.startswith(declared.sense)


def test_each_figure_has_a_record_or_stands_among_those_that_have_none() -> None:
    page = ROOT / "docs" / "performance.md"
    newest = [name.strip("`") for name, *_ in tables(page, "figure")]
    later = [name.strip("`") for name, *_ in tables(page, "later figure")]
    without = [one for row in tables(page, "figure without a record") for one in re.findall(r"`([^`]+)`", row[0])]
    replaced = {"isolation.victim_p99_ratio"}  # a value beside the figure that is judged now
    assert sorted({*newest} - replaced - {"the same, both on a veth pair"} | {*later, *without}) == sorted(GOALS)
    assert not {*newest, *later} & {*without}


def test_the_list_of_benchmarks_says_how_many_figures_each_has() -> None:
    rows = tables(ROOT / "docs" / "benchmarks.md", "benchmark")
    said = {re.findall(r"\[(\w+)\]", row[0])[0]: int(row[2] or 0) for row in rows}
    assert said == {name: len(entry.figures) for name, entry in entries().items()}


def test_what_taking_a_core_costs_is_that_of_the_records() -> None:
    xeon, epyc = arms(XEON), arms(EPYC)
    rows = tables(ROOT / "docs" / "cores.md", "what takes the core")
    assert len(rows) >= 6
    for _, arm, on_xeon, on_epyc in rows:
        assert same(on_xeon, xeon[arm.strip("`")]), arm
        assert same(on_epyc, epyc[arm.strip("`")]), arm


@pytest.mark.parametrize(("shown", "recorded", "alike"), [("1.05 us", "1.047", True), ("1.04", "1.047", False)])
def test_rounding(shown: str, recorded: str, alike: bool) -> None:
    assert same(shown, recorded) is alike
