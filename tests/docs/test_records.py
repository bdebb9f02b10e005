"""Numbers that a page takes from a record of the notebook are that record's, rounded."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from corelane.bench.harness.goals import GOALS
from corelane.bench.registry import entries

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs" / "notebook"
XEON, EPYC = "2026-11-results-intel.md", "2026-11-tcp-full-run-epyc.md"
# What came after these runs, the newest last.
LATER = (
    "2026-11-servers-xeon.md",
    "2026-11-tcp-short-ways-xeon.md",
    "2026-11-servers-again-xeon.md",
    "2026-11-attacks-again-xeon.md",
    "2026-11-stock-servers-and-laboratory-xeon.md",
    "2026-11-tracing-and-batches-again-xeon.md",
    "2026-11-ground-and-traces-xeon.md",
)
LATER_EPYC = (
    "2026-11-quiet-hours-epyc.md",
    "2026-11-quiet-hours-again-epyc.md",
    "2026-11-evening-epyc.md",
    "2026-11-night-epyc.md",
    "2026-11-ground-again-epyc.md",
    "2026-11-midnight-epyc.md",
    "2026-12-first-hours-epyc.md",
    "2026-12-morning-epyc.md",
    "2026-12-forenoon-epyc.md",
)
MOVES = "2026-11-full-run-epyc.md"  # of what taking a core costs
ONE_LINK = {  # figure: what the note says of the same over one link
    "kv.over_memcached_udp": "times memcached's GETs/s",
    "handlers.python_over_asyncio": "times asyncio's answers/s",
}
ALL_LINKS = "the same, all on a veth pair"  # as the figure's own values beside it say
NONE = "not taken"


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


def newest(*records: str) -> dict[str, str]:
    """The values of all of them; what the last one took counts."""
    found: dict[str, str] = {}
    for record in records:
        taken = {figure: value for figure, value in figures(record).items() if not value.startswith(NONE)}
        found = figures(record) | found | taken
    return found


def arms(record: str) -> dict[str, str]:
    """The p50 of each move of a core in a record."""
    section = (NOTEBOOK / record).read_text().partition("\n## handoff\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()]
    return {row[0]: row[3] for row in reversed(rows) if len(row) > 4}


def over_one_link(records: tuple[str, ...], figure: str) -> str:
    """What the newest of these records that has the figure says of both over one link."""
    newest = next(record for record in reversed(records) if not figures(record).get(figure, NONE).startswith(NONE))
    told = re.search(rf"the same generator: ([\d.]+) .*{ONE_LINK[figure]}", (NOTEBOOK / newest).read_text())
    assert told, (newest, figure)
    return told[1]


def all_on_one_link(records: tuple[str, ...], figure: str) -> str:
    """What the newest of these records has beside the figure."""
    texts = [(NOTEBOOK / record).read_text() for record in reversed(records)]
    told = (re.search(rf"^- `{figure}`: .*all on a veth pair: ([\d.]+)", text, re.M) for text in texts)
    return next((found[1] for found in told if found), NONE)


def test_newest_figures_are_those_of_the_records() -> None:
    xeon, epyc = newest(XEON, *LATER), newest(EPYC, *LATER_EPYC)
    above, compared = "", set()
    for name, goal, on_xeon, on_epyc in tables(ROOT / "docs" / "performance.md", "figure"):
        figure = name.strip("`")
        if name == "the same, both on a veth pair":
            wanted = over_one_link((XEON, *LATER), above), over_one_link((EPYC, *LATER_EPYC), above)
        elif name == ALL_LINKS:
            wanted = all_on_one_link(LATER, above), all_on_one_link((EPYC, *LATER_EPYC), above)
        else:
            wanted = xeon.get(figure, NONE), epyc.get(figure, NONE)  # none: it came later
            declared = GOALS[figure]
            assert goal == "none" if declared.goal is None else number(goal) == declared.goal
            assert declared.goal is None or goal.startswith(declared.sense)
        assert said(on_xeon, wanted[0]), (name, on_xeon, wanted)
        assert said(on_epyc, wanted[1]), (name, on_epyc, wanted)
        above = figure
        compared.add(name)
    assert compared >= {f"`{figure}`" for figure in newest(EPYC, *LATER, *LATER_EPYC)}


def said(shown: str, recorded: str) -> bool:
    """Whether a cell says what was recorded: the number, or that there is none."""
    return shown == NONE if recorded.startswith(NONE) else same(shown, recorded)


@pytest.mark.parametrize("figure", [*ONE_LINK, "kv-tcp.over_memcached", "kv-tcp.over_redis"])
def test_beside_a_ratio_over_two_links_stands_that_over_one(figure: str) -> None:
    """In the row below it, in every table of every page that has its value."""
    shown = 0
    for page in (ROOT / "docs").glob("*.md"):
        lines = page.read_text().splitlines()
        for line, below in itertools.pairwise(lines):
            if re.match(rf"\|.*`{re.escape(figure)}` \|.*\d", line):
                assert re.match(r"\|( \|)? the same, (both|all) on a veth pair \|.*\d", below), (page.name, line)
                shown += 1
    assert shown


def test_each_figure_stands_in_the_table() -> None:
    newest = {name.strip("`") for name, *_ in tables(ROOT / "docs" / "performance.md", "figure")}
    assert newest - {"the same, both on a veth pair", ALL_LINKS} == set(GOALS)


def test_the_list_of_benchmarks_says_how_many_figures_each_has() -> None:
    rows = tables(ROOT / "docs" / "benchmarks.md", "benchmark")
    said = {re.findall(r"\[(\w+)\]", row[0])[0]: int(row[2] or 0) for row in rows}
    assert said == {name: len(entry.figures) for name, entry in entries().items()}


def test_what_taking_a_core_costs_is_that_of_the_records() -> None:
    xeon, epyc = arms(XEON), arms(MOVES)
    rows = tables(ROOT / "docs" / "cores.md", "what takes the core")
    assert len(rows) >= 6
    for _, arm, on_xeon, on_epyc in rows:
        assert same(on_xeon, xeon[arm.strip("`")]), arm
        assert same(on_epyc, epyc[arm.strip("`")]), arm


@pytest.mark.parametrize(("shown", "recorded", "alike"), [("1.05 us", "1.047", True), ("1.04", "1.047", False)])
def test_rounding(shown: str, recorded: str, alike: bool) -> None:
    assert same(shown, recorded) is alike
