"""The benchmark `corelane bench lab`: the engine against formulas and against this machine's cores, policies against
what they say that they hold, and its speed. The package's page says more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..harness.plot import Canvas
    from ..harness.session import Session

SUMMARY = "laboratory for policies of jobs: against queueing theory and this machine's cores, and its speed"
FIGURES = ("lab.formula_error", "lab.box_error", "lab.doorbell", "lab.invariants", "lab.speed")
SEEDS, WHOLE_S = 10_000, 10  # of each policy that says that it holds something, in a run of so many seconds


def run(session: Session) -> None:
    """The formulas take twice session.seconds at most, the box six times, the doorbell half, the speed a fifth.
    Invariants are checked on a hundred seeds for each second, and on all of them from ten seconds on."""
    from . import boxed, doorbell, studies

    studies.against_formulas(session, 2 * session.seconds)
    session.take_canary()
    boxed.compare(session, 6 * session.seconds)
    doorbell.compare(session, 0.5 * session.seconds)
    studies.check_invariants(session, SEEDS if session.seconds >= WHOLE_S else int(100 * session.seconds))
    session.take_canary()
    studies.speed(session, 0.2 * session.seconds)
    session.settings["message"] = "one job, from its arrival to its end"


def plot(document: dict[str, Any]) -> Canvas:
    """The errors against formulas, and the box beside the simulator."""
    from . import plots

    return plots.checks(document)
