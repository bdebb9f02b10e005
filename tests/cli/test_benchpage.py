"""The page of `bench --report` and `bench report --html`: what is on it when a benchmark fails, or has no plot."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any

import pytest

from corelane.bench import registry
from corelane.bench.harness import document as doc
from corelane.bench.harness.session import Session
from corelane.cli import benchpage
from corelane.cli.main import main
from corelane.runtime.errors import CorelaneError

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'corelane[plot]'")


@pytest.fixture(scope="module")
def canary() -> dict[str, Any]:
    """A document without a load. Not to be changed."""
    with Session("canary", seconds=0.05, progress=io.StringIO()) as session:
        session.settings["message"] = "a gap"
        session.arm("one", yield_ns=12.0, n=5)
        session.arm("other", yield_ns=24.0, n=5)
    return session.document()


def page_of(tmp_path: Path, *documents: dict[str, Any], code: int = 0) -> str:
    for i, document in enumerate(documents):
        doc.write(document, tmp_path / "in" / f"{i}.json")
    assert main(["bench", "report", str(tmp_path / "in"), "--html", str(tmp_path / "out" / "x.html")]) == code
    return (tmp_path / "out" / "x.html").read_text()


def test_a_benchmark_writes_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new"
    assert main(["bench", "canary", "--seconds", "0.1", "--report", str(out)]) == 0
    assert f"wrote {out}/index.html" in capsys.readouterr().out
    page = (out / "index.html").read_text()
    assert "<title>corelane bench canary</title>" in page
    assert page.count('<div class="plot">') >= 1
    data = page.split('id="document-canary">')[1].split("</script>")[0]
    assert json.loads(data)["bench"] == "canary"


def test_all_goes_on_behind_one_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canary: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """And the page is there after each."""
    written: list[str] = []

    def measure(name: str, options: Any, defaults: bool = False) -> dict[str, Any]:
        page = tmp_path / "index.html"
        written.append(page.read_text() if page.exists() else "")
        if name == "echo":
            raise CorelaneError("this benchmark", "there is one core")
        return canary

    found = registry.entries()
    monkeypatch.setattr(registry, "entries", lambda: {name: found[name] for name in ("canary", "echo")})
    monkeypatch.setattr("corelane.cli.bench.measure", measure)
    assert main(["bench", "all", "--report", str(tmp_path)]) == 1
    page = (tmp_path / "index.html").read_text()
    assert "bench-canary" in page
    assert "this benchmark: there is one core" in page
    assert "bench-canary" in written[1]
    assert "this benchmark: there is one core" in capsys.readouterr().err


def test_a_document_of_a_benchmark_that_is_unknown(tmp_path: Path, canary: dict[str, Any]) -> None:
    page = page_of(tmp_path, canary | {"bench": "corelane load"})
    assert "corelane load" in page
    assert '<div class="plot">' in page, "the default"


def test_arms_that_nothing_can_be_drawn_of(tmp_path: Path, canary: dict[str, Any]) -> None:
    odd = copy.deepcopy(canary) | {"bench": "x"}
    odd["arms"] = [{"name": "a", "one_ns": 1.0}, {"name": "b", "two_ns": 1.0}]
    empty = copy.deepcopy(canary) | {"bench": "y", "arms": []}
    old = copy.deepcopy(canary) | {"bench": "bimodal"}
    page = page_of(tmp_path, odd, empty, old)
    assert "No plot: x has nothing to plot" in page
    assert "No plot: nothing was measured" in page
    assert "No plot: the arms are not those that this version draws" in page


def test_a_plot_that_breaks_the_rules_is_said_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canary: dict[str, Any]
) -> None:
    def refuse(*_: object) -> None:
        raise CorelaneError("plot canary", "it breaks the rules of plots: it does not say n")

    monkeypatch.setattr(benchpage, "_drawn", refuse)
    assert "it does not say n" in page_of(tmp_path, canary, code=1)


def test_a_place_that_cannot_be_written_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["bench", "canary", "--seconds", "9", "--report", str(tmp_path / "file")]) == 1
    assert "is not a folder that may be written" in capsys.readouterr().err
