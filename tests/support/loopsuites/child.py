"""One module of a suite, in a process of its own: python -m loopsuites.child DESCRIPTOR, and what to run on stdin.

stdin: {"suite", "package", "folder", "module", "loop" (null: asyncio's own), "only", "without"}, the last two patterns
of names. To the descriptor go lines of JSON: first the names of the tests, then {"begun": test} and
{"ended": test, ...} (an Outcome) of each.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
import unittest
from pathlib import Path
from typing import Any

from .replace import Made, named, replace
from .suites import Suite, wanted

_RANK = {"passed": 0, "skipped": 1, "failed": 2}
_TEXT = 3000  # characters of a traceback that are kept


class _Results(unittest.TestResult):
    """Tells of each test what became of it."""

    def __init__(self, out: int, names: dict[unittest.TestCase, str], made: Made) -> None:
        super().__init__()
        self._out, self._names, self._made = out, names, made
        self._result, self._why, self._ignored = "passed", "", ""

    def tell(self, line: object) -> None:
        os.write(self._out, json.dumps(line).encode() + b"\n")

    def ignored(self, unraisable: Any) -> None:
        """An exception in a place that cannot raise."""
        if not isinstance(unraisable.exc_value, Warning):
            self._ignored = f"{unraisable.err_msg or 'ignored in'} {unraisable.object!r}: {unraisable.exc_value!r}"

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._result, self._why, self._ignored = "passed", "", ""
        self._made.take()
        self.tell({"begun": self._names[test]})

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        loops, ours, linux = self._made.take()
        self.tell(
            {
                "ended": self._names[test],
                "result": self._result,
                "why": self._why[-_TEXT:],
                "ignored": self._ignored,
                "loops": loops,
                "ours": ours,
                "linux": linux,
            }
        )

    def _note(self, result: str, why: str) -> None:
        if _RANK[result] > _RANK[self._result]:
            self._result, self._why = result, why

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        text = "".join(traceback.format_exception(*err))
        if test not in self._names:  # a fixture of a module or class
            self.tell({"broken": str(test), "why": text[-_TEXT:]})
        self._note("failed", text)

    addFailure = addError

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self._note("failed", f"{subtest}\n" + "".join(traceback.format_exception(*err)))

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._note("skipped", reason)

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._note("failed", "passes, and is expected to fail")


def main() -> None:
    faulthandler.enable()
    out, asked = int(sys.argv[1]), json.load(sys.stdin)
    suite = Suite(asked["suite"], asked["package"], (asked["module"],), Path(asked["folder"]))
    suite.prepare()
    made = Made()
    if asked["loop"]:
        replace(named(asked["loop"]), made)
    tests = {name: test for name, test in suite.tests(asked["module"]) if wanted(name, asked["only"], asked["without"])}
    results = _Results(out, {test: name for name, test in tests.items()}, made)
    sys.unraisablehook = results.ignored
    results.tell(list(tests))
    unittest.TestSuite(tests.values()).run(results)
    results.tell("done")
    # A thread that a test left behind does not keep the process.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
