"""What commands of a group waited for (struct cl_trace_command): their wait, taken apart.

A batch goes to the leader's own log and to the other nodes at once, and is agreed on when both have it, or enough of
the others. The one of the two that is done first has what it took; the other has the rest. So the parts add up, and
what is slow has the time that it makes longer: a slow log is not charged to the others, nor they to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...runtime._native import lib

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

Stage = tuple[str, ...]

COMMIT: Stage = ("handler", "wait: commit")
BATCH: Stage = (*COMMIT, "batch")
"""Until its batch went."""
OWN_LOG: Stage = (*COMMIT, "own log")
OTHERS: Stage = (*COMMIT, "others")
APPLY: Stage = (*COMMIT, "apply")
"""From when it was agreed on: what was before it was applied, and it."""
LEADER: Stage = (*COMMIT, "leader")
"""Of one that came to another node: until the leader had answered."""
NEVER = 2**32 - 1


def parts_of(commands: Array, whole: Array) -> dict[Stage, Array]:
    """Ticks of each part of the waits; they add up. whole: ticks that each has waited."""
    import numpy

    whole = whole.astype(float)

    def at(field: str) -> Array:
        stamps: Array = numpy.minimum(numpy.where(commands[field] == NEVER, whole, commands[field]), whole)
        return stamps

    refused = commands["gone"] == NEVER
    forwarded = (commands["flags"] & lib.CL_TRACE_COMMAND_FORWARDED) != 0
    read = (commands["flags"] & lib.CL_TRACE_COMMAND_READ) != 0
    gone = at("gone")
    agreed = numpy.maximum(gone, at("agreed"))
    others = numpy.clip(at("others"), gone, agreed)
    durable = numpy.where(read, gone, numpy.clip(at("durable"), gone, agreed))
    log_last = durable >= others
    log = numpy.where(log_last, others, gone), numpy.where(log_last, agreed, durable)
    rest = numpy.where(log_last, gone, durable), numpy.where(log_last, others, agreed)
    acknowledged = (commands["durable"] != NEVER) & ~read
    flush, written, sent = (numpy.maximum(gone, at(field)) for field in ("flush", "written", "sent"))
    in_log = {
        "queued": numpy.where(acknowledged, _overlap(log, gone, flush), 0.0),
        "written": numpy.where(acknowledged, _overlap(log, flush, written), 0.0),
    }
    in_log["acknowledged"] = numpy.where(acknowledged, log[1] - log[0] - in_log["queued"] - in_log["written"], 0.0)
    in_log["not durable yet"] = numpy.where(acknowledged, 0.0, log[1] - log[0])
    sending = numpy.where(read, 0.0, _overlap(rest, gone, sent))
    parts = {
        BATCH: gone,
        **{(*OWN_LOG, name): ticks for name, ticks in in_log.items()},
        (*OTHERS, "sent"): sending,
        (*OTHERS, "acknowledged"): rest[1] - rest[0] - sending,
        APPLY: whole - agreed,
    }
    known = ~(refused | forwarded)
    parts = {stage: numpy.where(known, ticks, 0.0) for stage, ticks in parts.items()}
    parts[LEADER] = numpy.where(forwarded & ~refused, whole, 0.0)
    parts[(*COMMIT, "refused")] = numpy.where(refused, whole, 0.0)
    return {stage: ticks for stage, ticks in parts.items() if ticks.any()}


def _overlap(interval: tuple[Array, Array], begin: Array, end: Array) -> Array:
    import numpy

    both: Array = numpy.maximum(0.0, numpy.minimum(interval[1], end) - numpy.maximum(interval[0], begin))
    return both


def last_nodes(commands: Array) -> tuple[int, int]:
    """The node that most commands waited for last, of the others, and how many did. (0, 0): none is known."""
    import numpy

    nodes, times = numpy.unique(commands["node"][commands["node"] != 0], return_counts=True)
    return (int(nodes[times.argmax()]), int(times.max())) if len(nodes) else (0, 0)
