"""python -m loopsuites --loop MODULE:FACTORY: see the package's page."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .report import Report, compare, document
from .skips import Skips
from .suites import SAME, SUITES, NotHere


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loopsuites", description=__doc__)
    parser.add_argument("--loop", required=True, metavar="MODULE:FACTORY", help="the loop under test")
    parser.add_argument("--suite", action="append", choices=sorted(SUITES), help="which tests (all)")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="which of them, as test_ssl.* (all)")
    parser.add_argument("--once", action="store_true", help="without the same tests for other selectors")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the document goes (standard output)")
    asked = parser.parse_args()
    reports = []
    for name in asked.suite or SUITES:
        try:
            suite = SUITES[name]()
        except NotHere as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        only, without = asked.only or ("*",), SAME if asked.once else ()
        reports.append(compare(suite, asked.loop, Skips.of(name), only, without, _tell))
        show(reports[-1])
    text = json.dumps(document(reports), indent=2)
    if asked.json:
        asked.json.write_text(text + "\n")
    else:
        print(text)
    return 0 if reports and not any(report.failed for report in reports) else 1


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def show(report: Report) -> None:
    """For a reader, on standard error."""
    for test, why in report.failed.items():
        _tell(f"-- fails: {test}\n{why}")
    for test in report.needless:
        _tell(f"-- is on the list of what is skipped, and passes: {test}")
    for pattern in report.unused:
        _tell(f"-- is on the list of what is skipped, and there is no such test: {pattern}")
    _tell(
        f"{report.suite}: {report.total} tests, {report.passed} pass, {len(report.skipped)} are skipped, "
        f"{len(report.failed)} fail; {len(report.not_counted)} do not pass on stock asyncio and are not counted; "
        f"{report.on_ours} have endpoints on the runtime, {report.ours} in all, and {report.linux} on Linux"
    )


if __name__ == "__main__":
    sys.exit(main())
