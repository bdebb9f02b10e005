"""The screen of `corelane top`: a table of applications that can be sorted, and one of them in full.

A thread asks the iokernel, so that keys are answered while it is slow. Importing this imports textual, an optional
dependency of some 0.3 s.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Static

from ..runtime.errors import CorelaneError
from . import tables
from .watch import columns, key_of, policy_line

_MARKS = (" \u25b2", " \u25bc")  # upwards, downwards
_PADDING = 2  # columns of the terminal beside each cell of a table
_WORDS = ("NAME", "CLASS")  # columns that are sorted as words
_SCALES = {"us": 1.0, "ms": 1e3, "s": 1e6, "": 1.0, "%": 1.0}


Looks = Callable[[Callable[[float], object]], Iterator[Mapping[str, Any]]]


def show(looks: Looks, app: str | None = None) -> None:
    """Show statistics as they come, until who looks wants no more. CorelaneError if they end.

    looks: given what waits for so many seconds, or until the end, it gives statistics with rates (watch.rates).
    """
    screen = Screen(looks, app)
    screen.run()
    if screen.failure is not None:
        raise screen.failure


def value_of(cell: str) -> float:
    """What a cell is sorted by: its number, times in us; below all others where it has none."""
    found = re.fullmatch(r"([\d,]+(?:\.\d+)?)(us|ms|s|%|)(?:/[\d,]+)?", cell)
    return float(found[1].replace(",", "")) * _SCALES[found[2]] if found else float("-inf")


def shown_columns(rows: Sequence[Sequence[str]], width: int, sorted_by: str) -> list[int]:
    """Columns of a table, heads first, that fit side by side, the most wanted ones, in their order. The head of the one
    that it is sorted by has a mark."""
    heads = [f"{head}{_MARKS[0]}" if head == sorted_by else head for head in rows[0]]
    widths = [max(len(row[i]) for row in (heads, *rows)) + _PADDING for i in range(len(heads))]
    kept: list[int] = []
    for head in tables.WANTED:
        column = rows[0].index(head)
        if sum(widths[i] for i in kept) + widths[column] > width:
            break
        kept.append(column)
    return sorted(kept)


def ordered(rows: Mapping[str, Sequence[str]], column: int, head: str, downwards: bool) -> list[str]:
    """The keys of rows, by a column; those that are alike in it by their keys."""
    if head in _WORDS:
        return sorted(sorted(rows), key=lambda key: rows[key][column], reverse=downwards)
    return sorted(sorted(rows), key=lambda key: value_of(rows[key][column]), reverse=downwards)


class Screen(App[None]):
    """See the module. failure: why it ended, if nobody wanted that."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: auto; padding: 0 1; }
    #apps { height: auto; max-height: 60%; }
    #rest { padding: 1 1 0 1; }
    .frozen { background: $warning 30%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("space", "freeze", "Freeze"),
        Binding("s", "sort(1)", "Sort by"),
        Binding("S", "sort(-1)", "Sort by", show=False),
        Binding("r", "reverse", "Reverse"),
        Binding("enter", "open", "Open", priority=True),  # the table's own is not shown
        Binding("escape", "close", "All"),
    ]

    def __init__(self, looks: Looks, app: str | None = None) -> None:
        super().__init__()
        self.failure: CorelaneError | None = None
        self._ended = threading.Event()
        self._looks, self._opened = looks(self._ended.wait), app
        self._stats: Mapping[str, Any] | None = None
        self._frozen = False
        self._sorted_by, self._downwards = "CORE%", True
        self._heads: list[str] = []

    def compose(self) -> ComposeResult:
        """Head, table, the rest of it, keys."""
        yield Static("waiting for the first interval to pass", id="head", markup=False)
        table: DataTable[Text] = DataTable(id="apps", cursor_type="row", zebra_stripes=True)
        yield table
        with VerticalScroll():
            yield Static("", id="rest", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """The table has the keys; looking begins."""
        self.query_one(DataTable).focus()
        self.run_worker(self._go_on_looking, thread=True)

    def on_unmount(self) -> None:
        """Looking ends at once."""
        self._ended.set()

    def _go_on_looking(self) -> None:
        """In a thread of its own."""
        try:
            for stats in self._looks:
                if self._ended.is_set():
                    return
                self.call_from_thread(self._arrive, stats)
        except CorelaneError as error:
            if not self._ended.is_set():
                self.call_from_thread(self._fail, error)

    def _fail(self, error: CorelaneError) -> None:
        self.failure = error
        self.exit()

    def _arrive(self, stats: Mapping[str, Any]) -> None:
        if not self._frozen:
            self._stats = stats
            self._show_stats()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool:
        """Which keys there are: those of the table, or those of one application."""
        if action == "close":
            return self._opened is not None
        return self._opened is None or action not in ("open", "sort", "reverse")

    def on_resize(self) -> None:
        """Other columns may fit."""
        self._show_stats()

    def action_freeze(self) -> None:
        """What is shown stays; looking goes on."""
        self._frozen = not self._frozen
        self.query_one("#head").set_class(self._frozen, "frozen")
        self._show_stats()

    def action_sort(self, step: int) -> None:
        """By the next column that is shown."""
        if self._heads:
            at = self._heads.index(self._sorted_by) if self._sorted_by in self._heads else -step
            self._sorted_by = self._heads[(at + step) % len(self._heads)]
            self._downwards = self._sorted_by not in _WORDS
            self._show_stats()

    def action_reverse(self) -> None:
        """The other way round."""
        self._downwards = not self._downwards
        self._show_stats()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter, or a click on the row that the cursor is on."""
        if event.row_key.value is not None:
            self._opened = event.row_key.value
            self._show_stats()

    def action_open(self) -> None:
        """The application that the cursor is on, in full."""
        self.query_one(DataTable).action_select_cursor()

    def action_close(self) -> None:
        """Back to all applications."""
        self._opened = None
        self._show_stats()

    def _show_stats(self) -> None:
        if self._stats is None or not self.is_running:
            return
        stats = self._stats
        frozen = " -- frozen" if self._frozen else ""
        self.query_one("#head", Static).update(f"{tables.head_line(stats)}{frozen}\n{policy_line(stats)}")
        opened = [app for app in stats["apps"] if self._opened in (app["name"], key_of(app))]
        if self._opened is not None and not opened:
            rest = f"{self._opened} is not attached any more (Escape: all applications)"
        elif opened:
            rest = tables.details(opened[0], max(self.size.width - 4, 40))
        else:
            told = [row for app in stats["apps"] for row in tables.services(app)]
            rest = "\n".join([*(columns([list(tables.SERVICES), *told]) if told else []), *tables.rest(stats)])
        self._fill({key_of(app): tables.cells(app) for app in stats["apps"]})
        self.query_one("#apps").display = self._opened is None
        self.query_one("#rest", Static).update(rest)
        self.refresh_bindings()

    def _fill(self, rows: Mapping[str, list[str]]) -> None:
        """The table anew: it has a row an application. The cursor stays on its application."""
        table = self.query_one(DataTable)
        at = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value if table.row_count else None
        kept = shown_columns([list(tables.HEAD), *rows.values()], self.size.width, self._sorted_by)
        self._heads = [tables.HEAD[i] for i in kept]
        by = tables.HEAD.index(self._sorted_by)
        table.clear(columns=True)
        for head in self._heads:
            mark = _MARKS[self._downwards] if head == self._sorted_by else ""
            table.add_column(Text(f"{head}{mark}", justify="left" if head in _WORDS else "right"), key=head)
        keys = ordered(rows, by, self._sorted_by, self._downwards)
        for key in keys:
            cells = [Text(rows[key][i], justify="left" if tables.HEAD[i] in _WORDS else "right") for i in kept]
            table.add_row(*cells, key=key)
        if at in keys:
            table.move_cursor(row=keys.index(at))
