"""python -m loopsuites --loop MODULE:FACTORY | --wire: see the package's page."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .interpreters import NotHere, other
from .report import Report, compare, document
from .skips import Skips
from .suites import SAME, SUITES, Suite, cpython


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loopsuites", description=__doc__)
    loop = parser.add_mutually_exclusive_group(required=True)
    loop.add_argument("--loop", metavar="MODULE:FACTORY", help="the loop under test")
    loop.add_argument("--wire", action="store_true", help="libos.asyncio on a tap, its peers on Linux (root)")
    parser.add_argument("--suite", action="append", choices=sorted(SUITES), help="which tests (all)")
    parser.add_argument("--python", metavar="VERSION", help="CPython's own tests by that interpreter, as 3.12")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="which of them, as test_ssl.* (all)")
    parser.add_argument("--once", action="store_true", help="without the same tests for other selectors")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the document goes (standard output)")
    asked = parser.parse_args()
    reports = []
    for name in ["cpython"] if asked.python else asked.suite or SUITES:
        try:
            suite = cpython(other(asked.python)) if asked.python else SUITES[name]()
        except NotHere as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        reports.append(_compared(suite, asked))
        show(reports[-1], wire=asked.wire)
    text = json.dumps(document(reports), indent=2)
    if asked.json:
        asked.json.write_text(text + "\n")
    else:
        print(text)
    return 0 if reports and not any(report.failed for report in reports) else 1


def _compared(suite: Suite, asked: argparse.Namespace) -> Report:
    only, without = asked.only or ("*",), SAME if asked.once else ()
    skips = Skips.of(suite.name, suite.python.version, wire=asked.wire)
    if not asked.wire:
        return compare(suite, asked.loop, skips, only, without, _tell)
    from . import wire

    with wire.space() as inside:
        return compare(suite, wire.FACTORY, skips, only, without, _tell, inside=inside)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def show(report: Report, *, wire: bool) -> None:
    """For a reader, on standard error."""
    for test, why in report.failed.items():
        _tell(f"-- fails: {test}\n{why}")
    for test in report.needless:
        _tell(f"-- is on the list of what is skipped, and passes: {test}")
    for pattern in report.unused:
        _tell(f"-- is on a list, and there is no such test: {pattern}")
    for test in report.strays if wire else ():
        _tell(f"-- has all its endpoints on Linux, and is not on the list of such: {test}")
    _tell(
        f"{report.suite} {report.python}: {report.total} tests, {report.passed} pass, {len(report.skipped)} are "
        f"skipped, {len(report.failed)} fail; {len(report.not_counted)} do not pass on stock asyncio and are not "
        f"counted; {report.on_ours} have endpoints on the runtime, {len(report.on_linux)} on Linux alone; of the "
        f"endpoints {report.ours} were the runtime's, {report.linux} Linux'"
    )


if __name__ == "__main__":
    sys.exit(main())
