"""CPython's own tests of asyncio, and uvloop's, pass on our loop but for those that cpython.toml and uvloop.toml list.

`PYTHONPATH=tests/support python -m loopsuites --loop corelane.libos.asyncio:new_event_loop` says more.
"""

from __future__ import annotations

import pytest
from loopsuites.report import FIGURE, GOAL, Report, compare, document
from loopsuites.skips import Skips
from loopsuites.suites import SAME, SUITES, NotHere

LOOP = "corelane.libos.asyncio:new_event_loop"
SAMPLES = {
    "cpython": ("test_server.*", "test_buffered_proto.*", "test_streams.*"),
    "uvloop": ("test_tcp.*.test_create_[cs]*_[1-4]",),
}


def passed(name: str, only: tuple[str, ...] = ("*",), without: tuple[str, ...] = ()) -> Report:
    """All that are counted, but those that are listed."""
    try:
        suite = SUITES[name]()
    except NotHere as error:
        pytest.skip(str(error))
    report = compare(suite, LOOP, Skips.of(name), only, without)
    assert report.failed == {}
    assert report.needless == []
    assert report.passed == report.total - len(report.skipped)
    return report


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample(name: str) -> None:
    report = passed(name, SAMPLES[name], SAME)
    assert report.total > 5
    assert report.on_ours > 0, "some have endpoints on the runtime"


@pytest.mark.soak(takes_s=150)
def test_all() -> None:
    reports = [passed(name) for name in SUITES]
    figure = document(reports)["figures"][FIGURE]
    assert figure["value"] <= GOAL, figure
    for report in reports:
        assert report.unused == [], "names of the lists that are of no test here"
        assert report.total > 150
        print(f"{report.suite}: {report.total} tests, {len(report.skipped)} skipped, {report.on_ours} on the runtime")
