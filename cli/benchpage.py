"""The page of `corelane bench`: --report DIR, and `bench report --html`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..bench import registry
from ..runtime.errors import CorelaneError
from ..runtime.files import write_whole
from .outputs import check_writable

if TYPE_CHECKING:
    from ..bench.harness.figure import Figure


class Page:
    """The page of a run, written anew after each benchmark: what there is by then is there if the run is ended."""

    def __init__(self, path: Path, title: str) -> None:
        """CorelaneError if it cannot be written, or there are no plots for want of matplotlib."""
        from ..bench.harness import plot
        from ..bench.harness.report.documents import Measured

        check_writable(path)
        plot.check()
        self.path, self._title, self._measured = path, title, Measured()

    def add(self, document: dict[str, Any], plot: Figure | str) -> None:
        """A benchmark that was run; its plot, or why there is none."""
        self._measured.add(document, plot)
        self._write()

    def failed(self, name: str, why: CorelaneError) -> None:
        """One that ended with an error."""
        self._measured.failed[name] = str(why)
        self._write()

    def _write(self) -> None:
        from ..bench.harness.report.documents import report

        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, report(self._measured, self._title).encode())


def nothing(document: Mapping[str, Any]) -> str:
    """Why a document has nothing to plot; empty if it has."""
    if document["arms"]:
        return ""
    skipped = document["settings"]["skipped"]
    return f"nothing was measured ({'; '.join(f'{arm}: {reason}' for arm, reason in skipped.items())})"


def drawn_or_why(
    document: dict[str, Any], module: Any, png: Path | None = None
) -> tuple[Figure | str, CorelaneError | None]:
    """The benchmark's plot, in a file if there is to be one; or why there is none, and the error that this is. No plot
    is an error of who wants one in a file, not of a page."""
    from ..bench.harness.plot import NothingToPlot

    if why := nothing(document):
        return f"No plot: {why}.", None
    try:
        return _drawn(document, module, png), None
    except NothingToPlot as error:
        return f"No plot: {error}.", error if png else None
    except CorelaneError as error:
        return f"No plot: {error}.", error


def _drawn(document: dict[str, Any], module: Any, png: Path | None) -> Figure:
    from ..bench.harness.plot import default_plot

    canvas = getattr(module, "plot", default_plot)(document)
    try:
        figure: Figure = canvas.complete(document)
        if png is not None:
            canvas.save(png)
        return figure
    finally:
        canvas.close()


def page_of(documents: list[dict[str, Any]], path: Path) -> int:
    """A page of documents that were written before. 1: a plot breaks the rules, which the page says in its place."""
    page, code = Page(path, "corelane bench report"), 0
    for document in documents:
        entry = registry.entries().get(document["bench"])
        try:
            plot, failure = drawn_or_why(document, entry.load() if entry else None)
        except (IndexError, KeyError, TypeError, ValueError) as error:  # of another version: its arms are others
            plot, failure = f"No plot: the arms are not those that this version draws ({error!r}).", None
        page.add(document, plot)
        code = 1 if failure else code
    print(f"wrote {path}")
    return code
