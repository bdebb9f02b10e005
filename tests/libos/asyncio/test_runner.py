"""The runner of published tests: what it says of tests that pass, fail, hang, crash, and of the lists of skips."""

from __future__ import annotations

from pathlib import Path

import pytest
from loopsuites.report import FIGURE, Report, compare, document
from loopsuites.runner import run
from loopsuites.skips import Skips
from loopsuites.suites import Suite, cpython

COUNTING = '''
import asyncio
from types import SimpleNamespace

class Loop(asyncio.SelectorEventLoop):
    """Says that it has an endpoint on the runtime once it ran a task."""

    def __init__(self):
        self._counts = SimpleNamespace(ours=0, linux=1)
        super().__init__()

    def endpoints(self):
        return self._counts

    def create_task(self, *args, **kwargs):
        self._counts.ours = 1
        return super().create_task(*args, **kwargs)
'''
TESTS = '''
import asyncio, gc, os, selectors, time, unittest

OURS = type(asyncio.new_event_loop()).__name__ == "Loop"

class Tests(unittest.TestCase):
    def test_passes(self):
        asyncio.run(asyncio.sleep(0))

    def test_selector(self):
        loop = asyncio.SelectorEventLoop(selectors.PollSelector())
        self.assertIsInstance(loop, asyncio.SelectorEventLoop)
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    def test_on_linux(self):
        asyncio.SelectorEventLoop().close()

    def test_fails(self):
        self.assertFalse(OURS, "on a loop of ours")

    def test_fails_in_part(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertFalse(OURS and i == 1)

    def test_fails_on_all(self):
        self.fail("everywhere")

    def test_skips_itself(self):
        if OURS:
            self.skipTest("not for this one")

    def test_skips_everywhere(self):
        self.skipTest("for Windows")

    def test_raises_where_none_can(self):
        class Bad:
            def __del__(self):
                if OURS:
                    raise OSError("in the dark")
        Bad()
        gc.collect()

    def test_crashes(self):
        if OURS:
            os.abort()

    def test_hangs(self):
        if OURS:
            time.sleep(1000)

    def test_z(self):
        """Behind those that end the process."""
'''


@pytest.fixture
def planted(tmp_path: Path) -> Suite:
    folder = tmp_path / "planted" / "loops"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "counting.py").write_text(COUNTING)
    (folder / "test_a.py").write_text(TESTS)
    (folder / "test_b.py").write_text("import nothing_of_the_kind")
    return Suite("planted", "planted.loops", ("test_a",), folder)


def listed(tmp_path: Path, text: str = "") -> Skips:
    (tmp_path / "list.toml").write_text(f"[skips]\n{text}")
    return Skips(tmp_path / "list.toml")


def report_of(suite: Suite, skips: Skips) -> Report:
    return compare(suite, "planted.loops.counting:Loop", skips, patience_s=3)


def test_each_test_is_said_what_became_of(planted: Suite, tmp_path: Path) -> None:
    report = report_of(planted, listed(tmp_path))
    names = {test.removeprefix("test_a.Tests."): why for test, why in report.failed.items()}
    assert "on a loop of ours" in names.pop("test_fails")
    assert "i=1" in names.pop("test_fails_in_part")
    assert "not for this one" in names.pop("test_skips_itself")
    assert "in the dark" in names.pop("test_raises_where_none_can")
    crashed, hung = names.pop("test_crashes"), names.pop("test_hangs")
    assert "ended with -6" in crashed
    assert "in test_crashes" in crashed
    assert "hangs for 3 s" in hung
    assert "in test_hangs" in hung
    assert names == {}
    assert {test: why.splitlines()[-1] for test, why in report.not_counted.items()} == {
        "test_a.Tests.test_fails_on_all": "failed: AssertionError: everywhere",
        "test_a.Tests.test_skips_everywhere": "skipped: for Windows",
    }
    assert (report.total, report.passed) == (10, 4), "those that pass, and test_z behind a crash"
    assert (report.on_loop, report.on_ours, report.ours, report.linux) == (3, 2, 2, 3)
    assert report.strays == ["test_a.Tests.test_on_linux"]
    assert report.share_on_ours == 2 / 3
    figure = document([report])["figures"][FIGURE]
    assert (figure["value"], figure["met"]) == (None, False)
    assert "6 tests fail" in figure["reason"]


def test_what_is_listed_is_skipped_and_tried(planted: Suite, tmp_path: Path) -> None:
    skips = listed(tmp_path, '"*.test_[fsrch]*" = "why"\n"*.test_gone" = "why"')
    report = report_of(planted, skips)
    assert not report.failed
    assert set(report.skipped.values()) == {"why"}
    assert report.needless == ["test_a.Tests.test_selector"]
    assert report.unused == ["*.test_gone"]
    assert (report.total, report.passed, len(report.skipped)) == (10, 3, 7)
    figure = document([report])["figures"][FIGURE]
    assert (figure["value"], figure["met"]) == (7 / 10, False)


def test_lists_of_an_arrangement_and_of_an_interpreter(planted: Suite, tmp_path: Path) -> None:
    (tmp_path / "list.toml").write_text(
        '[skips]\n"*.test_z" = "all"\n["9.9".skips]\n"*.test_f*" = "9.9"\n[wire.linux]\n"*.test_on*" = "tap"\n'
    )
    skips = Skips(tmp_path / "list.toml", "9.9", wire=True)
    only = ["*.test_z", "*.test_f*", "*.test_on*"]
    report = compare(planted, "planted.loops.counting:Loop", skips, only)
    assert set(report.skipped.values()) == {"all", "9.9"}
    assert report.on_linux == {"test_a.Tests.test_on_linux": "tap"}
    assert report.strays == []
    assert skips.unused(["m.C.test_z"]) == ["*.test_f*", "*.test_on*"]
    plain = Skips(tmp_path / "list.toml")
    assert plain.reason("m.C.test_fails") is None
    assert plain.on_linux("m.C.test_on_linux") is None


def test_a_module_that_cannot_be_had_fails(planted: Suite) -> None:
    (outcome,) = run(planted, "test_b", None)
    assert outcome.result == "failed"
    assert "nothing_of_the_kind" in outcome.why


def test_a_skip_has_a_reason(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="x has no reason"):
        listed(tmp_path, '"x" = " "')
    for name in ("cpython", "uvloop"):
        Skips.of(name)


def test_cpythons_tests_are_found() -> None:
    """A few of them, on stock asyncio in the place of stock asyncio."""
    report = compare(cpython(), "asyncio:SelectorEventLoop", Skips.of("cpython"), ["test_buffered_proto.*"])
    assert (report.total, report.passed, report.on_loop) == (1, 1, 1)
