"""Which stage makes the tail of a service: the excess of its slow requests over its ordinary ones, stage by stage.

The excess is the mean of the slow minus the mean of the ordinary (those between the quartiles), so that the stages' add
up to that of the latency. Blame descends into a stage's parts while one of them explains EXPLAINS of its excess. What a
request waits behind a long one of its service is that one's stage's (behind.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...runtime import syscalls
from ...runtime._native import lib
from ...runtime.trace import WAITS
from . import systemcalls
from .behind import by_cause
from .causes import Cause, Slow, cause_of
from .commands import COMMIT, OTHERS, last_nodes
from .others import Others
from .others import lines as lines_of_others
from .stages import Stage, Table, shared

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

Shares = tuple[tuple[Stage, float], ...]

EXPLAINS = 0.8
QUANTILES = (0.99, 0.999)
UNKNOWN = Others()
FEWEST = 10  # requests above a percentile, for it to be one


@dataclass(frozen=True)
class Blame:
    """Of one percentile of one service.

    n: requests that it was taken of; drawn: of those that were drawn, else of all that were kept, the slow ones more
    often. first: the stage to look at first; alone: it explains EXPLAINS of the whole excess. shares: of the excess, of
    it and those beside it, most first. slow_us and ordinary_us: of that stage, means. what_if_us: the percentile if
    that stage had taken what it does in ordinary requests. cause: why, as far as the rules tell. evidence: lines.
    """

    service: str
    quantile: float
    value_us: float
    median_us: float
    n: int
    n_slow: int
    drawn: bool
    first: Stage
    alone: bool
    shares: Shares
    slow_us: float
    ordinary_us: float
    what_if_us: float
    cause: Cause | None
    evidence: tuple[str, ...]


def of_table(seen: Table, quantiles: Sequence[float] = QUANTILES, others: Others = UNKNOWN) -> list[Blame]:
    """Of each service, by what there are enough requests for. others: for the evidence."""
    import numpy

    out = []
    for service in numpy.unique(seen.messages["service"]):
        one = seen.of_service(int(service))
        name = seen.names[int(service)] if service < len(seen.names) else f"service {service}"
        out += [found for q in quantiles if (found := of_service(one, name, q, others)) is not None]
    return out


def of_service(one: Table, name: str, quantile: float, others: Others = UNKNOWN) -> Blame | None:
    """Blame for a percentile (0.99) of a table with one service. None: too few requests, or they are alike."""
    import numpy

    is_drawn = (one.messages["flags"] & lib.CL_TRACE_DRAWN) != 0
    drawn = bool(is_drawn.sum() * (1 - quantile) >= FEWEST)
    population = is_drawn if drawn else numpy.ones(len(is_drawn), bool)
    n = int(population.sum())
    if n * (1 - quantile) < FEWEST:
        return None
    recorded, one = one, by_cause(one)
    total = one.total[population]
    value, median = (float(numpy.quantile(total, q)) for q in (quantile, 0.5))
    low, high = (float(numpy.quantile(total, q)) for q in (0.25, 0.75))
    slow = one.total >= value
    own = slow & ~shared(one.messages)
    if own.sum() >= FEWEST:
        slow = own  # those whose stages are known apart
    ordinary = population & (one.total >= low) & (one.total <= high)
    excess = {path: float(t[slow].mean() - t[ordinary].mean()) for path, t in one.stages.items()}
    whole = sum(excess.values())
    if whole <= 0:
        return None
    first, shares = _descend(excess, (), whole)
    alone = bool(first)
    if not alone:  # the one that makes the most, and in it where that is
        first, _ = _descend(excess, shares[0][0], whole * shares[0][1])
    of_stage = _times(one, first)
    normal = float(of_stage[ordinary].mean())
    better = one.total - numpy.maximum(of_stage - normal, 0)
    return Blame(
        name,
        quantile,
        value,
        median,
        n,
        int(slow.sum()),
        drawn,
        first,
        alone,
        shares,
        float(of_stage[slow].mean()),
        normal,
        float(numpy.quantile(better[population], quantile)),
        cause_of(Slow(first, recorded, one, slow)),
        (*_evidence(one, slow, first), *lines_of_others(first, one, slow, others)),
    )


def _descend(excess: Mapping[Stage, float], stage: Stage, time: float) -> tuple[Stage, Shares]:
    """The deepest part of a stage, whose excess is `time`, that explains enough of the one above it; or itself.

    And the shares of it and those beside it in the whole excess; if none explains enough, of the stage's parts.
    """
    whole = sum(excess.values())
    shares: Shares = ()
    while True:
        depth = len(stage) + 1
        parts: dict[Stage, float] = {}
        for path, part in excess.items():
            if path[: len(stage)] == stage and len(path) >= depth:
                parts[path[:depth]] = parts.get(path[:depth], 0.0) + part
        if not parts:
            return stage, shares
        ranked = sorted(parts.items(), key=lambda part: -part[1])
        shares = tuple((path, part / whole) for path, part in ranked)
        if ranked[0][1] < EXPLAINS * time:
            return stage, shares
        stage, time = ranked[0]


def _times(one: Table, stage: Stage) -> Array:
    """Of a stage with all that is in it."""
    import numpy

    times: Array = numpy.sum([t for path, t in one.stages.items() if path[: len(stage)] == stage], axis=0)
    return times


def _evidence(one: Table, slow: Array, stage: Stage) -> tuple[str, ...]:
    """What is known besides of the slow ones."""
    import numpy

    messages = one.messages[slow]
    lines = []
    where, times = numpy.unique(messages["kthread"], return_counts=True)
    if len(where) and times.max() >= EXPLAINS * times.sum() and len(numpy.unique(one.messages["kthread"])) > 1:
        lines.append(f"{times.max()} of {times.sum()} ended on kthread {where[times.argmax()]}")
    for flag, text in ((lib.CL_TRACE_STOLEN, "a sibling had picked up"), (lib.CL_TRACE_ERROR, "failed:")):
        if n := int(((messages["flags"] & flag) != 0).sum()):
            lines.append(f"{text} {n} of {len(messages)}")
    for field, text in (("faults", "page faults"), ("switches", "times the kernel took the CPU")):
        if n := int((messages[field] > 0).sum()):
            total = int(messages[field].sum())
            lines.append(f"{text} since the slow one before: in {n} of {len(messages)}, {total} in all")
    if one.calls is not None:
        lines += systemcalls.lines_of(one.calls, messages["id"], stage, one.hz, syscalls.names())
    return (*lines, *_objects(one, messages, stage), *_nodes(one, messages, stage))


def _nodes(one: Table, messages: Array, stage: Stage) -> list[str]:
    """Of commands, the node that they waited for last."""
    import numpy

    if stage[: len(OTHERS)] != OTHERS and stage != COMMIT:
        return []
    mine = one.commands[numpy.isin(one.commands["id"], messages["id"])]
    node, times = last_nodes(mine)
    return [f"{times} of {len(mine)} waited for node {node} last"] if times else []


def _objects(one: Table, messages: Array, stage: Stage) -> list[str]:
    """The object that most of the waits were for, and who held it."""
    import numpy

    if len(stage) < 2 or not stage[1].startswith("wait: "):
        return []
    what = next((number for number, name in WAITS.items() if stage[1] == f"wait: {name}"), None)
    mine = one.waits[(one.waits["what"] == what) & numpy.isin(one.waits["id"], messages["id"])]
    mine = mine[mine["object"] != 0]
    if not len(mine):
        return []
    objects, times = numpy.unique(mine["object"], return_counts=True)
    most = objects[times.argmax()]
    lines = [f"{times.max()} of {len(mine)} waits are for the {stage[1][6:]} at {int(most):#x}"]
    held_by = mine["holder"][(mine["object"] == most) & (mine["holder"] != 0)]
    holders, held = numpy.unique(held_by, return_counts=True)
    if len(holders):
        most_held = int(holders[held.argmax()])
        lines.append(f"most often held by the uthread at {most_held:#x}: {held.max()} of {held.sum()}")
    return lines


def lines_of(blame: Blame) -> list[str]:
    """For people."""
    mark = f"p{100 * blame.quantile:g}"
    of = "drawn at random" if blame.drawn else "kept, slow ones more often: no percentile of all"
    head = f"{blame.service}: {mark} {blame.value_us:.1f} us, median {blame.median_us:.1f} (n = {blame.n:,}, {of})"
    first = blame.first
    share = dict(blame.shares).get(first, blame.shares[0][1])
    said = "makes" if blame.alone else "makes the most, and no stage makes it alone:"
    part = f"{share:.0%} of the excess"
    if share > 1.1:
        part = f"the excess and more ({share:.0%}, as other stages are shorter in slow ones)"
    lines = [
        head,
        f"  {name_of(first)} {said} {part}: {blame.slow_us:.1f} us in the slowest "
        f"{blame.n_slow:,}, {blame.ordinary_us:.1f} in ordinary ones",
    ]
    others = [(path, part) for path, part in blame.shares if path != first[: len(path)] and part >= 0.01]
    if blame.cause is not None:
        lines.append(f"  cause: {blame.cause.word}: {blame.cause.text}")
    if others:
        lines.append("  besides: " + ", ".join(f"{name_of(path)} {part:.0%}" for path, part in others))
    lines += [f"  {line}" for line in blame.evidence]
    lines.append(f"  without that: {mark} would be {blame.what_if_us:.1f} us")
    return lines


def name_of(stage: Stage) -> str:
    """As people read it."""
    return " / ".join(stage)


def document_of(blame: Blame) -> dict[str, Any]:
    """For --json."""
    return {
        "service": blame.service,
        "quantile": blame.quantile,
        "value_us": round(blame.value_us, 3),
        "median_us": round(blame.median_us, 3),
        "n": blame.n,
        "n_slow": blame.n_slow,
        "drawn": blame.drawn,
        "stage": list(blame.first),
        "alone": blame.alone,
        "shares": [{"stage": list(path), "share": round(part, 4)} for path, part in blame.shares],
        "slow_us": round(blame.slow_us, 3),
        "ordinary_us": round(blame.ordinary_us, 3),
        "what_if_us": round(blame.what_if_us, 3),
        "cause": None if blame.cause is None else blame.cause.word,
        "evidence": list(blame.evidence),
    }
