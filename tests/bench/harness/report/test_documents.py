"""The page of documents says what fell short and why, and has everything that was measured."""

from __future__ import annotations

import copy
import json
from html.parser import HTMLParser
from typing import Any

import pytest

from corelane.bench.harness import document as doc
from corelane.bench.harness.report.documents import Measured, report
from corelane.bench.harness.table import canary_line

VOID = {"meta", "br", "hr"}


class Page(HTMLParser):
    """What a page says: its text by section, its ids, and whether each element is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: dict[str, str] = {}
        self.ids: list[str] = []
        self.scripts: dict[str, str] = {}
        self._section, self._script = "", ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if told.get("id"):
            self.ids.append(str(told["id"]))
        if tag == "section":
            self._section = str(told["aria-labelledby"])
        if tag == "script":
            self._script = str(told.get("id"))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if tag == "section":
            self._section = ""

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[self._script] = self.scripts.get(self._script, "") + data
        else:
            self.texts[self._section] = f"{self.texts.get(self._section, '')} {data}"


def page_of(*documents: dict[str, Any], failed: dict[str, str] | None = None) -> Page:
    whole = Measured(failed=failed or {})
    for document in documents:
        whole.add(document, "No plot: this is a test.")
    return Page(report(whole, "corelane bench all"))


def test_what_fell_short_comes_first_with_its_reasons(measured: dict[str, Any]) -> None:
    page = page_of(measured, failed={"kv": "it needs a second core"})
    short = page.texts["short"]
    assert "echo.rps_per_core" in short
    assert "a reflector: 2,000,000" in short
    assert "worker busy stops ours, theirs <b>&amp;</b>" in short
    assert "there was no <script>alert(1)</script>" in short
    assert "it needs a second core" in short
    assert "needs root" in short
    assert "echo.p50_over_cacheline" not in short, "it is met"
    assert list(page.texts) == ["", "short", "figures", "bench-echo"]
    assert "1 met, 1 missed, 1 not taken" in page.texts[""]


def test_a_run_without_faults_says_so(measured: dict[str, Any]) -> None:
    document = copy.deepcopy(measured)
    document["figures"] = {"echo.p50_over_cacheline": document["figures"]["echo.p50_over_cacheline"]}
    document["settings"]["skipped"] = {}
    assert "every figure was taken, and meets its goal" in page_of(document).texts["short"]


def test_a_loud_run_is_not_judged(measured: dict[str, Any]) -> None:
    document = copy.deepcopy(measured)
    document["canary"] |= {"loud": True, "worst_lost_fraction": 0.5, "worst_cpu": 1, "bound_lost_fraction": 0.05}
    document["figures"] = doc.judged(document["figures"], document["canary"])
    page = page_of(document)
    assert "not judged" in page.texts[""]
    assert "the canary lost 50 % of core 1" in page.texts["short"]
    assert "echo is not judged" in page.texts["bench-echo"]


def test_the_section_of_a_benchmark_has_everything(measured: dict[str, Any]) -> None:
    text = " ".join(page_of(measured).texts["bench-echo"].split())
    assert "No plot: this is a test." in text
    assert "theirs <b>&amp;</b>" in text, "as it was written, not as markup"
    for arm in measured["arms"]:
        assert f"{arm['offered_rps']:,.0f}" in text
    assert "0.4 % unanswered: worker busy (worker 100 % busy)" in text
    assert "something was noticed" in text
    assert canary_line(measured["canary"])[1:] in text
    assert str(measured["machine"]["cpu_model"]) in text
    assert str(measured["settings"]["power"]) in text


def test_the_section_has_tables_of_the_benchmarks_own(measured: dict[str, Any]) -> None:
    document = copy.deepcopy(measured)
    head, row = ["arm", "0.1", "named"], ["ours", 4321.5, "lock"]
    document["settings"]["tables"] = [{"title": "Work by load", "head": head, "rows": [row]}]
    text = " ".join(page_of(document).texts["bench-echo"].split())
    assert "Work by load arm 0.1 named ours 4322 lock" in text
    whole = Measured()
    whole.add(document, "No plot: this is a test.")
    row_of_it = '<th scope="row">ours</th><td class="number">4322</td><td>lock</td>'
    assert row_of_it in report(whole, "corelane bench all"), "words are no numbers"


def test_the_document_is_in_the_page(measured: dict[str, Any]) -> None:
    scripts = page_of(measured).scripts
    assert json.loads(scripts["document-echo"]) == measured
    assert "<" not in scripts["document-echo"], "nothing in it ends the element"


def test_markup_is_well_formed_and_ids_are_unique(measured: dict[str, Any]) -> None:
    page = page_of(measured, measured)
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert {"bench-echo", "bench-echo-2"} <= set(page.ids), "two runs of one benchmark"


def test_an_empty_page_is_a_page() -> None:
    page = page_of(failed={"echo": "there is one core"})
    assert "0 benchmarks; 1 failed" in page.texts[""]
    assert "there is one core" in page.texts["short"]


@pytest.mark.parametrize("change", ["arms", "canary"])
def test_a_document_of_little_is_a_page_too(measured: dict[str, Any], change: str) -> None:
    document = copy.deepcopy(measured)
    if change == "arms":
        document["arms"] = []
    else:
        document["canary"]["cores"] = []
    assert "bench-echo" in page_of(document).texts
