"""The benchmark `corelane bench sim`: the simulator checked, its speed, and the studies. The package's page says
more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..harness.plot import Canvas
    from ..harness.session import Session

SUMMARY = "simulator: checked against queueing theory, then 4 to 256 cores under each policy"
FIGURES = (
    "sim.erlang_error",
    "sim.events_per_s",
    "sim.box_p50_error",
    "sim.box_p99_error",
    "sim.box_share_error",
)


def run(session: Session) -> None:
    """0.3 of session.seconds for the formulas, 0.4 and 3 times as much for the machine; on top the plain check, as long
    as `studies.check_formulas` says, and the studies, of which each point takes a tenth of session.seconds at most (all
    together some eight times session.seconds)."""
    from . import agreement, box, interval, managed_check, preemption, quantum, studies

    studies.check_formulas(session, 0.3 * session.seconds)
    preemption.compare(session, 0.02 * session.seconds * studies.EVENTS_PER_S)
    session.take_canary()
    scheduler = box.compare(session, 0.4 * session.seconds)
    iokernel = managed_check.compare(session, 3 * session.seconds)
    agreement.judge(session, scheduler, iokernel)
    studies.policies_against_load(session, 0.1 * session.seconds)
    studies.cores_of_one_loop(session, 0.1 * session.seconds)
    interval.cores_against_interval(session, 0.1 * session.seconds)
    quantum.tails_against_load(session, 0.05 * session.seconds)
    quantum.loads_for_a_goal(session, 0.05 * session.seconds)
    session.settings["message"] = "one simulated request, from arrival to completion"


def plot(document: dict[str, Any]) -> Canvas:
    """Tail against load and cores for each policy, cores needed against the interval, the machine and its model, and
    what a quantum and the cost of a preemption do to the tail."""
    from . import plots

    return plots.draw(document)
