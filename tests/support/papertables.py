"""Fills in what tables of docs/related.md and docs/posix.md have measured: PYTHONPATH=tests/support python -m
papertables PAGE

They are those with a column "measured here". A row's second cell says what was measured. Its goal and its values on the
Intel Xeon and the AMD EPYC go into the next three cells. It is one of:

    `kv.over_memcached_udp`                   a figure: its row of the newest figures in docs/performance.md
    the same, both on a veth pair             the row below that figure's there
    `colocate.linearity`: raw hand-overs      what a record has beside the figure
    `echo`, mode spin: `busy_fraction`        an arm of a benchmark: a column of its first row that has that column

For the last two the newest record of the notebook counts that has it.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
MACHINES = (r"xeon|intel", r"epyc")  # of the columns, as names of records have them
MEASURED = ["measured here", "goal", "Intel Xeon", "AMD EPYC"]  # of a head, from the second cell on
NONE = "not taken"
FIGURE = re.compile(r"`([\w-]+\.\w+)`")
BESIDE = re.compile(r"`([\w-]+\.\w+)`: (.+)")
ARM = re.compile(r"`(\w+)`, (.+): `([^`]+)`")


def cells(line: str) -> list[str]:
    """The cells of a line of a table, none of another line."""
    return [cell.strip() for cell in line.strip()[1:-1].split("|")] if line.startswith("|") else []


@cache
def newest() -> list[list[str]]:
    """The rows of the newest figures: name, goal, values."""
    part = (DOCS / "performance.md").read_text().partition("\n## The newest figures\n")[2]
    table = part.partition("\n| figure |")[2].partition("\n\n")[0]
    return [cells(line) for line in table.splitlines()[2:]]


@cache
def records(machine: str) -> list[str]:
    """The texts of the records of a machine, newest first, as the notebook lists them."""
    index = (DOCS / "notebook" / "README.md").read_text()
    pages = re.findall(r"\]\((\S+\.md)\)", index.partition("newest first")[2].partition("\nFindings:")[0])
    return [(DOCS / "notebook" / page).read_text() for page in pages if re.search(machine, page)]


def figure(name: str) -> list[str]:
    """Goal and values of a figure."""
    (row,) = (row for row in newest() if row[0] == f"`{name}`")
    return row[1:]


def below(above: str, name: str) -> list[str]:
    """Goal and values of the row that stands below a figure's."""
    names = [row[0] for row in newest()]
    row = newest()[names.index(f"`{above}`") + 1]
    assert row[0] == name, (above, name)
    return row[1:]


def beside(name: str, what: str, machine: str) -> str:
    """What the newest record that has it says beside a figure. Older ones call raw hand-overs bare."""
    for text in records(machine):
        for line in re.findall(rf"^- `{re.escape(name)}`: (.+)$", text, re.M):
            told = dict(part.rpartition(": ")[::2] for part in line.replace("bare hand", "raw hand").split("; "))
            if what in told:
                return told[what]
    return NONE


def arm(bench: str, name: str, column: str, machine: str) -> str:
    """A column of an arm's first row that has it, in the newest record of the benchmark."""
    for text in records(machine):
        part = text.partition(f"\n## {bench}\n")[2].partition("\n## ")[0]
        head: list[str] = []
        for line in part.splitlines():
            row = cells(line)
            if not row:
                continue
            if row[0] == "arm":
                head = row
            elif row[0] == name and column in head and row[head.index(column)] != "-":
                return row[head.index(column)]
    return NONE


def values(measured: str, above: str) -> list[str]:
    """Goal and values of what a cell says was measured. above: the figure of a row further up."""
    if plain := FIGURE.fullmatch(measured):
        return figure(plain[1])
    if measured.startswith("the same, "):
        return below(above, measured)
    if found := BESIDE.fullmatch(measured):
        taken = [beside(found[1], found[2], machine) for machine in MACHINES]
    else:
        found = ARM.fullmatch(measured)
        assert found, f"what was measured is not told: {measured}"
        taken = [arm(found[1], found[2], found[3], machine) for machine in MACHINES]
    assert taken != [NONE, NONE], f"no record has {measured}"
    return ["", *taken]


def filled(page: str) -> str:
    """The page's text with values in all rows of such tables in which something was measured."""
    lines, inside, above = [], False, ""
    for line in page.splitlines():
        row = cells(line)
        is_head = row[1:5] == MEASURED
        inside = is_head or (inside and bool(row))
        if inside and not is_head and row[1] and not set(row[1]) <= set("-:"):
            row[2:5] = values(row[1], above)
            above = plain[1] if (plain := FIGURE.fullmatch(row[1])) else above
            line = "|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|"
        lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(filled(path.read_text()))
