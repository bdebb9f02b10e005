"""What `corelane run --work N --deadline S` adds to a run: it ends when the work is done, and the iokernel has promised
by when that is (docs/deadlines.md)."""

from __future__ import annotations

import argparse
import errno
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..runtime.errors import CorelaneError
from . import values
from .saying import say
from .usage import WrongUsage

if TYPE_CHECKING:
    from ..libos import Promised, Runtime

_STEP_S = 0.05  # between two looks at what was done
_LOOK_S = 0.25  # and at what became of the promise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of it."""
    work = parser.add_argument_group("work with a deadline, of batch class (docs/deadlines.md)")
    work.add_argument("--work", type=values.positive, metavar="N", help="end when so many units of work are done")
    work.add_argument(
        "--deadline",
        type=_duration,
        metavar="S",
        help="they are to be done within so long (30, 30s, 5m, 2h): the iokernel measures the rate, then promises the "
        "cores that it takes, or refuses; as far as deadline_cores of [apps.NAME] or [users.NAME] there allow it",
    )
    work.add_argument(
        "--counter", default="units", metavar="NAME", help="which counter of its own counts units (default units)"
    )
    work.add_argument(
        "--best-effort", action="store_true", help="if the deadline is refused: go on with what others leave"
    )


def _duration(text: str) -> float:
    """Seconds, of "30", "30s", "5m" or "2h"."""
    factor = {"s": 1, "m": 60, "h": 3600}.get(text[-1:], 0)
    seconds = values.seconds(text[:-1] if factor else text) * (factor or 1)
    if not 0.001 <= seconds <= 30 * 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is no time of 1 ms to 30 days")
    return seconds


def check(options: argparse.Namespace) -> None:
    """Raises WrongUsage for options that do not go together."""
    if options.deadline is not None and options.work is None:
        raise WrongUsage("--deadline", "how much work there is is not said", "give --work N, too")
    if options.deadline is not None and options.nic:
        raise WrongUsage("--deadline", "it is an iokernel's promise", "attach to one by --socket")


class Work:
    """The work of a run, watched from the thread that waits for its end. counted: the service's counters."""

    def __init__(
        self, options: argparse.Namespace, name: str, runtime: Runtime, counted: Callable[[], dict[str, int]]
    ) -> None:
        self._options, self._name, self._runtime, self._counted = options, name, runtime, counted
        self._first = self._count()
        self._begun, self._next_look, self._state = 0.0, 0.0, "none"
        self.late = False

    def _count(self) -> int:
        counted = self._counted()
        if self._options.counter not in counted:
            known = ", ".join(sorted(counted)) or "none"
            raise CorelaneError(f"run {self._name}", f"it has no counter {self._options.counter}", f"it has: {known}")
        return counted[self._options.counter]

    def wait(self, seconds: float | None) -> None:
        """Until the work is done, a signal, or the end of that time. Raises CorelaneError if it is refused."""
        self._begun = time.monotonic()
        end = None if seconds is None else self._begun + seconds
        while True:
            now = time.monotonic()
            done = self._count() - self._first
            if self._options.deadline is not None and (now >= self._next_look or done >= self._options.work):
                self._next_look = now + _LOOK_S
                self._look(done, now - self._begun)
            if done >= self._options.work:
                self._say_done(done, now - self._begun)
                return
            left_s = _STEP_S if end is None else min(_STEP_S, end - now)
            if left_s <= 0 or self._runtime.wait(left_s):
                return

    def _look(self, done: int, passed_s: float) -> None:
        """What became of the promise; one that comes anew is asked for what is left."""
        try:
            promised = self._runtime.promised(self._first + done)
            left_s = self._options.deadline - passed_s
            if promised.state == "none" and done < self._options.work and left_s > 0.001:
                promised = self._runtime.promise(
                    self._options.work, left_s, done=self._first, counter=self._options.counter
                )
        except CorelaneError as error:
            if error.errno not in (errno.ENOTCONN, errno.ECONNRESET, errno.EBUSY):
                raise
            return  # the next iokernel is asked
        if promised.state != self._state:
            self._state = promised.state
            self._tell(promised)

    def _tell(self, promised: Promised) -> None:
        more = {"cores": promised.cores, "done": promised.done, "ends_in_s": promised.ends_in_s}
        if promised.state == "measuring":
            say(self._options, "measuring", f"{self._name}: how fast it is, is being measured", **more)
        elif promised.state == "admitted":
            say(self._options, "admitted", f"{self._name}: its deadline is promised: {promised.text}", **more)
        elif promised.state == "missed":
            self.late = True
            say(self._options, "missed", f"{self._name} missed its deadline: {promised.text}", **more)
        elif promised.state == "refused" and self._options.best_effort:
            say(self._options, "refused", f"{self._name} has no deadline: {promised.text}; it goes on without", **more)
        elif promised.state == "refused":
            raise CorelaneError(f"run {self._name} with a deadline", promised.text)

    def _say_done(self, done: int, passed_s: float) -> None:
        deadline = self._options.deadline
        text = f"{self._name} did {done:,} {self._options.counter} in {passed_s:.1f} s"
        if deadline is not None:
            when = "before" if passed_s <= deadline else "after"
            self.late |= passed_s > deadline
            text += f", {abs(deadline - passed_s):.1f} s {when} its deadline"
        say(self._options, "done", text, done=done, seconds=passed_s, deadline_s=deadline, state=self._state)
