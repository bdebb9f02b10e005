"""The screen of `top`: what fits into terminals of several sizes, and what its keys do."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from cltest import wait_until

from corelane.cli import tables, watch
from corelane.iokernel import Iokernel
from corelane.runtime.errors import CorelaneError

from .test_top import later, statistics

pytest.importorskip("textual", reason="needs textual: pip install 'corelane[top]'")
from textual.widgets import DataTable, Static

from corelane.cli import screen

SIZES = [(80, 24), (120, 40), (240, 60)]


def looks(*given: Mapping[str, Any] | CorelaneError) -> screen.Looks:
    """These, one after the other; then nothing more."""

    def look(_wait: Callable[[float], object]) -> Iterator[Mapping[str, Any]]:
        for stats in given:
            if isinstance(stats, CorelaneError):
                raise stats
            yield stats

    return look


def first() -> dict[str, Any]:
    return watch.rates(statistics(), later())


def pressed(keys: list[str], *given: Mapping[str, Any], size: tuple[int, int] = (80, 24)) -> screen.Screen:
    """A screen after these keys, once it has seen what is given."""
    shown = screen.Screen(looks(*given or (first(),)))

    async def drive() -> None:
        async with shown.run_test(size=size) as pilot:
            await shown.workers.wait_for_complete()
            await pilot.pause()
            for key in keys:
                await pilot.press(key)
                await pilot.pause()
            remember(shown)

    asyncio.run(drive())
    return shown


def remember(shown: screen.Screen) -> None:
    """What is to be seen, kept beyond the end of the screen."""
    table = shown.query_one(DataTable)
    shown.seen = {  # type: ignore[attr-defined]
        "heads": [str(column.label) for column in table.columns.values()],
        "rows": [[str(cell) for cell in table.get_row_at(i)] for i in range(table.row_count)],
        "cursor": table.cursor_row,
        "table": table.display,
        "head": str(shown.query_one("#head", Static).render()),
        "rest": str(shown.query_one("#rest", Static).render()),
        "keys": [binding.binding.description for binding in shown.active_bindings.values() if binding.binding.show],
        "fits": table.virtual_size.width <= table.size.width,
        "whole": [widget.region.right <= shown.size.width for widget in shown.query("#head, #apps, #rest")],
    }


def seen(shown: screen.Screen) -> dict[str, Any]:
    found: dict[str, Any] = shown.seen  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_at_home_in_every_size(size: tuple[int, int]) -> None:
    found = seen(pressed([], size=size))
    heads = [head.split()[0] for head in found["heads"]]
    assert heads == [head for head in tables.HEAD if head in heads], "in their order"
    assert set(heads) == set(tables.WANTED[: len(heads)]), "the most wanted"
    assert len(heads) >= (len(tables.HEAD) if size[0] == 240 else 6)
    assert found["fits"], "nothing to scroll sideways"
    assert all(found["whole"])
    assert [row[0] for row in found["rows"]] == ["job", "kv"], "most core use first"
    assert found["head"].startswith("iokernel pid 42 on /run/corelane.sock, up 12 s")
    assert "allocator of loop 0" in found["rest"]


def test_keys_sort_and_reverse() -> None:
    by = "CORE%"
    found = seen(pressed(["s"]))
    heads = [head.split()[0] for head in found["heads"]]
    following = heads[(heads.index(by) + 1) % len(heads)]
    assert [head for head in found["heads"] if "\u25bc" in head] == [f"{following} \u25bc"]
    assert [row[0] for row in seen(pressed(["S", "s"]))["rows"]] == ["job", "kv"]
    assert [row[0] for row in seen(pressed(["r"]))["rows"]] == ["kv", "job"]
    names = seen(pressed(["S"] * heads.index(by)))
    assert "NAME \u25b2" in names["heads"], "words from the first on"


def test_frozen_is_frozen() -> None:
    second = copy.deepcopy(first())
    second["apps"][0]["rates"]["rx_delivered"] = 7.0
    got = pressed(["space"])
    assert "-- frozen" in seen(got)["head"]
    assert "100,000" in seen(got)["rows"][1]
    got._arrive(second)
    assert got._stats is not second


def test_enter_opens_an_application_and_escape_goes_back() -> None:
    found = seen(pressed(["down", "enter"]))
    assert found["rest"].startswith("kv: pid 101")
    assert "rx_delivered" in found["rest"]
    assert not found["table"]
    assert found["keys"] == ["Quit", "Freeze", "All"]
    back = seen(pressed(["down", "enter", "escape"]))
    assert back["table"]
    assert back["keys"] == ["Quit", "Freeze", "Sort by", "Reverse", "Open"]
    assert "allocator of loop 0" in back["rest"]


def test_the_cursor_stays_on_its_application() -> None:
    assert seen(pressed(["down"]))["cursor"] == 1
    found = seen(pressed(["down", "r"]))
    assert found["rows"][found["cursor"]][0] == "kv"


def test_an_opened_application_that_goes_is_said_to_be_gone() -> None:
    without = copy.deepcopy(first())
    without["apps"] = without["apps"][1:]
    shown = screen.Screen(looks(without), "kv")

    async def drive() -> None:
        async with shown.run_test(size=(80, 24)) as pilot:
            await shown.workers.wait_for_complete()
            await pilot.pause()
            remember(shown)

    asyncio.run(drive())
    assert seen(shown)["rest"].startswith("kv is not attached any more")


def test_the_end_of_the_iokernel_ends_it() -> None:
    shown = screen.Screen(looks(first(), CorelaneError("the iokernel has ended")))

    async def drive() -> None:
        async with shown.run_test() as pilot:
            await pilot.pause()
            await shown.workers.wait_for_complete()

    asyncio.run(drive())
    assert str(shown.failure) == "the iokernel has ended"


@pytest.mark.parametrize(
    ("cells", "order"),
    [
        (["2.5ms", "900us", "1.0s", "-"], ["1.0s", "2.5ms", "900us", "-"]),
        (["1,000", "999", "10"], ["1,000", "999", "10"]),
        (["1/2", "3/4", "-"], ["3/4", "1/2", "-"]),
    ],
)
def test_cells_are_sorted_by_what_they_say(cells: list[str], order: list[str]) -> None:
    rows = {f"name {i}": ["", cell] for i, cell in enumerate(cells)}
    assert [rows[key][1] for key in screen.ordered(rows, 1, "X", downwards=True)] == order


def test_in_a_terminal_it_is_a_screen_and_q_ends_it(socket_path: str) -> None:
    ours, theirs = pty.openpty()
    said = b""
    with Iokernel(socket_path, poll="block"):
        command = [sys.executable, "-m", "corelane.cli.main", "top", "--socket", socket_path, "-d", "0.05"]
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
            os.close(theirs)
            os.set_blocking(ours, False)

            def has(words: bytes) -> bool:
                nonlocal said
                with contextlib.suppress(OSError):  # nothing yet, or the other end is closed
                    said += os.read(ours, 1 << 16)
                return words in said

            wait_until(lambda: has(b"no application") or has(b"polling"), 60.0)
            os.write(ours, b"q")
            wait_until(lambda: has(b"\x1b[?1049l") or process.poll() is not None, 60.0)
            assert process.wait(60) == 0, said
    os.close(ours)
    assert b"\x1b[?1049h" in said, "on the alternate screen, which gives back what was there"
