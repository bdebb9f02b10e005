"""Compares a loop with asyncio's own, test by test, and counts."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .runner import PATIENCE_S, Outcome, run
from .skips import Skips
from .suites import Suite

FIGURE, GOAL = "asyncio.skips", 0.03  # at most that share of the tests is skipped, and the others pass
SKIPPED_PATIENCE_S = 10.0  # with a test that is not expected to pass


@dataclass
class Report:
    """What became of a suite.

    total: tests that pass on stock asyncio; of others nothing is said. not_counted: why those do not. skipped: by the
    list, with its reason. failed: neither passed nor listed. needless: listed, and pass. unused: of the list, fit none.
    ours, linux: endpoints of the loops under test; on_ours: tests that had one on the runtime; on_linux: those that had
    some, and all on Linux, with their reason, "" if that is not listed.
    """

    suite: str
    python: str
    loop: str
    total: int = 0
    passed: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    needless: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    not_counted: dict[str, str] = field(default_factory=dict)
    ours: int = 0
    linux: int = 0
    on_loop: int = 0
    on_ours: int = 0
    on_linux: dict[str, str] = field(default_factory=dict)

    @property
    def strays(self) -> list[str]:
        """Tests whose endpoints are on Linux, and nobody knows why."""
        return [test for test, reason in self.on_linux.items() if not reason]

    @property
    def share_on_ours(self) -> float:
        """Of the tests that had endpoints, those that had one on the runtime."""
        return self.on_ours / max(1, self.on_ours + len(self.on_linux))


def compare(
    suite: Suite,
    loop: str,
    skips: Skips,
    only: Sequence[str] = ("*",),
    without: Sequence[str] = (),
    told: Callable[[str], None] = lambda _: None,
    patience_s: float = PATIENCE_S,
    inside: Sequence[str] = (),
) -> Report:
    """Run a suite on stock asyncio and on a loop, "module:factory".

    skips: what is not expected to pass. only, without: patterns of names, "test_ssl.*". inside: of both runs, the
    beginning of a command line (runner.run).
    """
    report = Report(suite.name, suite.python.version, loop)
    seen: list[str] = []
    for module in suite.modules:
        if any(fnmatch.fnmatch(module, pattern.split(".")[0]) for pattern in only):
            control = run(suite, module, None, only, without, patience_s, inside)
            seen += [outcome.test for outcome in control]
            _compare_module(report, skips, suite, module, control, patience_s, inside)
            told(f"{module}: of {report.total} {report.passed} have passed, {len(report.skipped)} are skipped")
    report.unused = skips.unused(seen) if tuple(only) == ("*",) and not without else []
    return report


def _compare_module(
    report: Report,
    skips: Skips,
    suite: Suite,
    module: str,
    control: Sequence[Outcome],
    patience_s: float,
    inside: Sequence[str],
) -> None:
    good = {outcome.test: outcome for outcome in control if outcome.result == "passed"}
    report.not_counted |= {o.test: f"{o.result}: {_last_line(o.why)}" for o in control if o.test not in good}
    report.total += len(good)
    listed = {test: reason for test in good if (reason := skips.reason(test)) is not None}
    report.skipped |= listed
    wanted = [test for test in good if test not in listed]
    for outcome in run(suite, module, report.loop, wanted, (), patience_s, inside) if wanted else ():
        why = _failure(outcome, good.get(outcome.test))
        if why:
            report.failed[outcome.test] = why
        else:
            report.passed += 1
        report.ours += outcome.ours
        report.linux += outcome.linux
        report.on_loop += outcome.loops > 0
        report.on_ours += outcome.ours > 0
        if outcome.linux and not outcome.ours:
            report.on_linux[outcome.test] = skips.on_linux(outcome.test) or ""
    if listed:
        tried = run(suite, module, report.loop, list(listed), (), SKIPPED_PATIENCE_S, inside)
        report.needless += [outcome.test for outcome in tried if not _failure(outcome, good.get(outcome.test))]


def _failure(outcome: Outcome, control: Outcome | None) -> str:
    """What is wrong with an outcome, beside that of the control; "" if nothing is."""
    if outcome.result == "skipped":
        return f"skips itself on this loop alone: {outcome.why}"
    if outcome.result == "failed" or control is None:
        return outcome.why
    return outcome.ignored if not control.ignored else ""


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else ""


def document(reports: Sequence[Report]) -> dict[str, Any]:
    """What is printed as JSON. The figure has no value while a test fails that is not on a list."""
    total, skipped = sum(r.total for r in reports), sum(len(r.skipped) for r in reports)
    failed = sum(len(r.failed) for r in reports)
    figure: dict[str, Any] = {"value": None, "goal": GOAL, "sense": "at most", "met": False, "runs": []}
    if failed or not total:
        figure["reason"] = f"{failed} tests fail that are not on a list" if total else "no test was run"
    else:
        figure |= {"value": skipped / total, "met": skipped / total <= GOAL, "runs": [skipped / total]}
    return {"bench": "asyncio-suites", "suites": [asdict(report) for report in reports], "figures": {FIGURE: figure}}
