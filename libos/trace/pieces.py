"""Records of several readings, as those of one; and fewer of them, around a moment.

Kinds of records are those that `Records` has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...runtime._native import lib
from ...runtime.trace import Records, records_of

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


def arrays(records: Records) -> dict[str, Array]:
    """The arrays of all kinds, by their names."""
    all_of = {field.name: getattr(records, field.name) for field in dataclasses.fields(records)}
    return {name: value for name, value in all_of.items() if hasattr(value, "dtype")}


def number(records: Records) -> int:
    """How many there are, of all kinds."""
    return sum(len(of) for of in arrays(records).values())


def joined(parts: Sequence[Records]) -> Records:
    """Several readings as one; none are an empty one."""
    import numpy

    if not parts:
        return records_of(b"")
    kinds = {name: numpy.concatenate([getattr(part, name) for part in parts]) for name in arrays(parts[0])}
    lost, garbage = sum(part.lost for part in parts), sum(part.garbage for part in parts)
    return _with(parts[0], {**kinds, "lost": lost, "garbage": garbage})


def nearest(records: Records, n: int, at: int) -> Records:
    """At most n of them, those that began nearest to a stamp."""
    import numpy

    if number(records) <= n:
        return records
    if n <= 0:
        return _with(records, {name: of[:0] for name, of in arrays(records).items()})
    stamp = numpy.uint64(at)
    far = {
        name: numpy.where(of["begin"] > stamp, of["begin"] - stamp, stamp - of["begin"])
        for name, of in arrays(records).items()
    }
    # The first one that is left out, with all that are as far as it: so there are never more than n.
    first = numpy.partition(numpy.concatenate(list(far.values())), n)[n]
    return _with(records, {name: of[far[name] < first] for name, of in arrays(records).items()})


def _with(records: Records, kinds: dict[str, Any]) -> Records:
    return dataclasses.replace(records, **kinds)


def raw(records: Records) -> bytes:
    """As in a segment: one after the other, CL_TRACE_RECORD bytes each. `records_of` is the way back."""
    data = b"".join(of.tobytes() for of in arrays(records).values())
    assert len(data) % lib.CL_TRACE_RECORD == 0
    return data
