"""What README.md and docs/ tell a reader to type is typed here.

Fenced blocks, in the order of the page, in one folder of the test's own:

    ```python file=echo.py     written to that file (any language)
    ```sh                      run by bash, all of a page's blocks as one script that stops at the first failure;
                               without root, a block with `sudo` is left out; as root, `sudo` is dropped
    ```sh needs=gdb            the same, left out where there is no such program
    <!-- not run: REASON -->   above a block: it is not run, for this reason

A comment in capitals behind a command of a script that is run is what the command prints: `# VALUE x, END`.

Background processes of a page are ended after it. Other fenced blocks (```text, indented code) are only read.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from cltest.compiled import compile_lab_once

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FLOORS = ("runtime", "drivers", "iokernel", "libos", "apps", "bench", "cli")
ROOMS = sorted(page for floor in FLOORS for page in (ROOT / floor).rglob("README.md"))
FENCE = re.compile(r"(?:<!-- not run: (?P<why>.+?) -->\n)?^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.M | re.S)
ANSWER = re.compile(r"\S +# ([A-Z]{2}.*)$", re.M)
RUN = re.compile(r"sh(?: needs=(?P<needs>\S+))?")  # info of a block that is run


@dataclass(frozen=True)
class Block:
    """A fenced block: its info string, its text, and why it is not run."""

    info: str
    body: str
    why_not: str

    @property
    def file(self) -> str | None:
        named = re.search(r"file=(\S+)", self.info)
        return named.group(1) if named else None


def name(page: Path) -> str:
    """A page's name in the tests' names: of a room's page with its folder."""
    return page.relative_to(ROOT).as_posix() if page in ROOMS else page.name


def anchors(page: Path) -> set[str]:
    """What links to a page's headings end with, as GitHub makes it of their text."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.M)
    shown = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text) for text in headings]
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in shown}


def blocks(page: Path) -> list[Block]:
    return [Block(m["info"].strip(), m["body"], m["why"] or "") for m in FENCE.finditer(page.read_text())]


def script(page: Path) -> str:
    """The page's shell blocks as one script; empty if there is none."""
    parts = []
    for block in blocks(page):
        kind = RUN.fullmatch(block.info)
        if kind is None or block.why_not:
            continue
        if kind["needs"] and shutil.which(kind["needs"]) is None:
            print(f"{page.name}: a block is left out for want of {kind['needs']}")
            continue
        if "sudo " in block.body and os.geteuid() != 0:
            continue
        parts.append(re.sub(r"\bsudo (-E )?", "", block.body))
    return "\n".join(parts)


def answers(page: Path) -> list[str]:
    """What the page says that its scripts print, of those that are run."""
    run = script(page)
    scripts = [b.body for b in blocks(page) if b.file and b.file.endswith(".sh") and b.file in run]
    return [part for text in scripts for said in ANSWER.findall(text) for part in said.split(", ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_fences_are_closed_and_reasons_given(page: Path) -> None:
    text = page.read_text()
    assert len(re.findall(r"^```", text, re.M)) % 2 == 0
    for block in blocks(page):
        assert not (RUN.fullmatch(block.info) and block.why_not == "" and not block.body.strip())


@pytest.mark.parametrize("page", [*PAGES, *ROOMS], ids=name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target, heading in re.findall(r"\]\((?!https?://)([^)#]*)#?([^)]*)\)", page.read_text()):
        to = page.parent / target if target else page
        assert to.exists(), f"{name(page)} links to {target}"
        assert not heading or heading in anchors(to), f"{name(page)} links to {target}#{heading}"


@pytest.mark.parametrize("page", [*PAGES, *ROOMS], ids=name)
def test_lines_of_text_are_not_too_long(page: Path) -> None:
    text = FENCE.sub(lambda m: "\n" * m[0].count("\n"), page.read_text())  # keeps line numbers
    lines = enumerate(text.splitlines(), 1)
    assert not [n for n, line in lines if len(line) > 120 and not line.startswith("|")]


def test_every_page_is_in_the_index() -> None:
    linked = set(re.findall(r"\]\(([\w.-]+\.md)\)", (ROOT / "docs" / "index.md").read_text()))
    assert linked == {p.name for p in PAGES if p.parent.name == "docs"} - {"index.md"}


def test_each_term_is_in_the_glossary_once_and_in_its_place() -> None:
    rows = re.findall(r"^\| (.+?) \|.+\|.+\|$", (ROOT / "docs" / "glossary.md").read_text(), re.M)
    terms = [row.casefold() for row in rows[1:]]  # without the heads of columns
    assert terms == sorted(set(terms))


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_every_page_says_where_it_ends(page: Path) -> None:
    """What a feature does not deal with is said on its page; pages that describe none are named here."""
    if page.name not in ("index.md", "contributing.md", "critique.md"):
        assert re.search(r"does not deal with", page.read_text(), re.I), page


def test_every_benchmark_is_described() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    from corelane.bench import registry

    for entry in registry.entries().values():
        part = re.search(rf"^## {entry.name}$(.*?)(?=^## )", text, re.M | re.S)
        assert part, entry.name
        described = set(re.findall(r"`([\w-]+\.\w+)`", part[1]))
        assert set(entry.figures) <= described, entry.name


# Those which simulate, measure, or wait: make soak has them.
LONG = {
    "lab.md",
    "load.md",
    "performance.md",
    "policies.md",
    "probes.md",
    "raft.md",
    "raft-simulation.md",
    "simulator.md",
    "slow.md",
    "tutorial.md",
}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, id=p.name, marks=[pytest.mark.soak(takes_s=15)] if p.name in LONG else ())
        for p in PAGES
        if script(p)
    ],
)
def test_commands_of_the_page_work(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if "corelane.bench.sim" in page.read_text():
        request.getfixturevalue("simulator")
    if page.name == "lab.md":
        compile_lab_once()
    for block in blocks(page):
        if block.file:
            (tmp_path / block.file).write_text(block.body)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
    }
    said = tmp_path / "said.txt"  # a file, since background jobs would hold a pipe open
    with said.open("w") as file:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script(page)],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            process_group=0,  # a session would be a scheduling group of its own (docs/cores.md)
        )
    try:
        code = shell.wait(timeout=110)
        # What the page started in the background must have come up, too, unless it wrote that elsewhere.
        wanted = len(re.findall(r"^corelane run (?!--posix)(?!.* 2>).*(?:&$|loadgen)", script(page), re.M))
        up = re.compile(" serves (?:UDP|TCP) port | works at ")
        deadline = time.monotonic() + 30
        while code == 0 and len(up.findall(said.read_text())) < wanted and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)
        shell.wait(timeout=60)
    out = said.read_text() + "".join(f"\n{f.name}: {f.read_text()}" for f in sorted(tmp_path.glob("*.out")) if code)
    print(out)
    assert code == 0, out
    assert len(up.findall(out)) == wanted, out
    assert "Traceback" not in out
    lines = iter(line.strip() for line in out.splitlines())
    for answer in answers(page):
        assert answer in lines, f"{answer} is not printed, or not in its place:\n{out}"
