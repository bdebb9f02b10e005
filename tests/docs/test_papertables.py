"""Tables of docs/related.md, what papers claim and what is measured here, and of docs/posix.md, what stock servers
gain, have the values of the newest records."""

from __future__ import annotations

import re
from pathlib import Path

import papertables
import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE, POSIX = DOCS / "related.md", DOCS / "posix.md"
PAPERS = ("Shenango", "Shinjuku", "Arrakis", "Adaptive batching")


def rows(paper: str) -> list[list[str]]:
    """The rows of a paper's table."""
    part = PAGE.read_text().partition(f"\n### {paper}\n")[2].partition("\n## ")[0].partition("\n### ")[0]
    head, _, *table = [row for row in map(papertables.cells, part.splitlines()) if row]
    assert head == ["claim of the paper", *papertables.MEASURED, "missing here"]
    return table


@pytest.mark.parametrize("page", [PAGE, POSIX], ids=lambda page: str(page.name))
def test_a_page_has_the_values_of_the_records(page: Path) -> None:
    text = page.read_text()
    assert text == papertables.filled(text), f"PYTHONPATH=tests/support python -m papertables docs/{page.name}"


def test_what_stock_servers_gain_is_all_there() -> None:
    """Each figure of the benchmark, and no number beside the table."""
    part = POSIX.read_text().partition("\n## What it gains\n")[2].partition("\n## ")[0]
    figures = {row[0] for row in papertables.newest() if row[0].startswith("`posix.")}
    assert figures <= {row[1] for row in map(papertables.cells, part.splitlines()) if row}
    prose = "\n".join(line for line in part.splitlines() if not line.startswith("|"))
    assert re.findall(r"\d[\d,.]*", re.sub(r"\(\S+\)|p99|`[^`]*`", "", prose)) == []


@pytest.mark.parametrize("paper", PAPERS)
def test_each_claim_has_a_value_and_says_what_is_missing(paper: str) -> None:
    """A claim goes on in the rows below it whose first cell is empty."""
    claims: list[list[list[str]]] = []
    for row in rows(paper):
        claims += [[]] if row[0] else []
        claims[-1].append(row)
    assert len(claims) >= 4
    for claim in claims:
        taken = [value for row in claim for value in row[3:5] if value and value != papertables.NONE]
        assert all(any(digit.isdigit() for digit in value) for value in taken), claim[0]
        assert taken, claim[0]
    assert any(claim[0][5] for claim in claims)


def test_a_value_that_is_no_longer_so_is_replaced() -> None:
    text = PAGE.read_text()
    line = next(line for line in text.splitlines() if "`handoff.ask_p50_us`" in line)
    typed = text.replace(line, line.replace(papertables.cells(line)[3], "0.1 us"))
    assert typed != text
    assert papertables.filled(typed) == text


def test_the_newest_record_counts_and_older_names_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    echo = "\n\n## echo\n\n| arm | {0} |\n|---|---:|\n| one | {1} |\n| one | {2} |\n\n## kv\n"
    old = "\n- `a.b`: bare hand-overs: 0.1; it, 95 % from: 0.2" + echo.format("x", 3, 4)
    new = "\n- `a.b`: raw hand-overs: 0.5" + echo.format("y", "-", 7)
    monkeypatch.setattr(papertables, "records", lambda machine: [new, old] if machine == "epyc" else [old])
    assert papertables.values("`a.b`: raw hand-overs", "") == ["", "0.1", "0.5"]
    assert papertables.values("`a.b`: it, 95 % from", "") == ["", "0.2", "0.2"]
    assert papertables.values("`echo`, one: `x`", "") == ["", "3", "3"]
    assert papertables.values("`echo`, one: `y`", "") == ["", papertables.NONE, "7"]
    for nowhere in ("`a.b`: both", "`echo`, two: `x`", "`kv`, one: `x`", "words alone"):
        with pytest.raises(AssertionError):
            papertables.values(nowhere, "")


def test_records_are_those_of_the_machine_newest_first() -> None:
    xeon, epyc = (papertables.records(machine) for machine in papertables.MACHINES)
    assert all("Xeon" in text for text in xeon)
    assert all("EPYC" in text for text in epyc)
    dates = [re.search(r"2026-\d\d-\d\d", text.splitlines()[0]) for text in epyc]
    named = [found[0] for found in dates if found]
    assert named == sorted(named, reverse=True)
    assert len(named) > 3
