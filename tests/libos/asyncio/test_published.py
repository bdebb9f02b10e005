"""CPython's own tests of asyncio, and uvloop's, pass on our loop but for those that cpython.toml and uvloop.toml list.

In two arrangements: with a runtime of the process alone, where peers that are blocking sockets come by Linux; and with
the loop at one end of a tap and these at the other (loopsuites.wire), where nearly all endpoints are the runtime's.

`PYTHONPATH=tests/support python -m loopsuites --wire` says more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest
from cltest import netns_missing
from loopsuites import wire
from loopsuites.interpreters import NotHere, other
from loopsuites.report import FIGURE, GOAL, Report, compare, document
from loopsuites.skips import Skips
from loopsuites.suites import SAME, SUITES, Suite, cpython

INSIDE, WIRE = "inside", "wire"
LOOPS = {INSIDE: "corelane.libos.asyncio:new_event_loop", WIRE: wire.FACTORY}
ON_WIRE = {"cpython": 0.9, "uvloop": 0.8}  # least share of tests with endpoints that has some on the runtime
SAMPLES = {
    "cpython": ("test_server.*", "test_buffered_proto.*", "test_streams.*"),
    "uvloop": ("test_tcp.*.test_create_[cs]*_[1-3]",),
}


def suite_of(name: str, python: str = "") -> Suite:
    try:
        return cpython(other(python)) if python else SUITES[name]()
    except NotHere as error:
        pytest.skip(str(error))


@pytest.fixture
def inside(arrangement: str) -> Iterator[Sequence[str]]:
    """The beginning of a command line of who runs tests in that arrangement."""
    if arrangement == WIRE and (missing := netns_missing()):
        pytest.skip(missing)
    with wire.space() if arrangement == WIRE else contextlib.nullcontext(()) as begin:
        yield begin


def passed(
    suite: Suite,
    arrangement: str,
    inside: Sequence[str],
    only: tuple[str, ...] = ("*",),
    without: tuple[str, ...] = (),
) -> Report:
    """All that are counted, but those that are listed."""
    skips = Skips.of(suite.name, suite.python.version, wire=arrangement == WIRE)
    report = compare(suite, LOOPS[arrangement], skips, only, without, inside=inside)
    assert report.failed == {}
    assert report.needless == []
    assert report.passed == report.total - len(report.skipped)
    if arrangement == WIRE:
        assert report.strays == [], "whose endpoints are on Linux, and nobody has said why"
    return report


def all_passed(suites: Sequence[Suite], arrangement: str, inside: Sequence[str]) -> None:
    reports = [passed(suite, arrangement, inside) for suite in suites]
    figure = document(reports)["figures"][FIGURE]
    assert figure["value"] <= GOAL, figure
    for report in reports:
        assert report.unused == [], "names of the lists that are of no test here"
        assert report.total > 150
        print(f"{report.suite} {report.python}: {report.total} tests, {len(report.skipped)} skipped", end="; ")
        print(f"{report.on_ours} on the runtime, {len(report.on_linux)} on Linux alone", end="; ")
        print(f"endpoints: {report.ours} the runtime's, {report.linux} Linux'")
        if arrangement == WIRE:
            assert report.share_on_ours >= ON_WIRE[report.suite]
            assert report.ours > report.linux


@pytest.mark.parametrize("arrangement", [INSIDE, pytest.param(WIRE, marks=pytest.mark.root)])
@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample(name: str, arrangement: str, inside: Sequence[str]) -> None:
    report = passed(suite_of(name), arrangement, inside, SAMPLES[name], SAME)
    assert report.total > 5
    assert report.on_ours > 0, "some have endpoints on the runtime"


@pytest.mark.soak(takes_s=150)
@pytest.mark.parametrize("arrangement", [INSIDE, pytest.param(WIRE, marks=pytest.mark.root)])
def test_all(arrangement: str, inside: Sequence[str]) -> None:
    all_passed([suite_of(name) for name in SUITES], arrangement, inside)


@pytest.mark.soak(takes_s=100)
@pytest.mark.parametrize("arrangement", [pytest.param(WIRE, marks=pytest.mark.root)])
@pytest.mark.parametrize("python", ["3.12", "3.13"])
def test_all_of_other_interpreters(python: str, arrangement: str, inside: Sequence[str]) -> None:
    """Of the same build: the modules are of the limited API."""
    all_passed([suite_of("cpython", python)], arrangement, inside)
