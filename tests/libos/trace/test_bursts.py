"""Which doorbell an answer belongs to, and what became of it behind that (bursts.py), on records that are made up. Over
the whole path: test_trace.py; the iokernel's side: tests/iokernel/switch/c/stamps.c."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy
from maderequests import HZ, NAMES, Made, ticks

from corelane.libos.trace import bursts
from corelane.libos.trace.pieces import joined, number, raw
from corelane.libos.trace.stages import table, windows
from corelane.runtime._native import lib
from corelane.runtime.trace import Records, records_of

TX_RING_US, NIC_US = 7.0, 2.0


def made(n: int = 300) -> Records:
    requests = Made(n, 3)
    requests.us["TX ring"][:], requests.us["to the NIC"][:] = TX_RING_US, NIC_US
    return requests.records()


def test_the_stages_behind_a_doorbell_are_its_messages() -> None:
    records = made()
    seen = table(records, NAMES, HZ)
    assert numpy.allclose(seen.stages[bursts.TX_RING], TX_RING_US)
    assert numpy.allclose(seen.stages[bursts.TO_THE_NIC], NIC_US)
    assert numpy.allclose(sum(seen.stages.values()), seen.total)
    assert numpy.allclose(seen.total, records.messages["sent"] * 1e6 / HZ + TX_RING_US + NIC_US)
    in_ring, given = bursts.behind(records)
    for message, *ticks_behind in zip(records.messages, in_ring.tolist(), given.tolist(), strict=True):
        parts = windows(message, *ticks_behind)
        assert all(a[2] == b[1] for a, b in itertools.pairwise(parts))
        assert parts[-1][2] == message["sent"] + ticks(TX_RING_US + NIC_US)


def test_messages_with_one_doorbell_share_what_became_of_it() -> None:
    records = made()
    messages = records.messages
    messages["kthread"] = 0
    messages["begin"], messages["sent"] = messages["begin"][7], messages["sent"][7]
    records.bursts["kthread"] = 0
    seen = table(records, NAMES, HZ)
    assert numpy.allclose(seen.stages[bursts.TX_RING], TX_RING_US)


def test_what_is_not_known_to_have_left_has_no_such_stages() -> None:
    """Not sent with a known doorbell, no answer, a stall, another kthread's, a doorbell of which nothing is told."""
    records = made()
    flags, kthread = records.messages["flags"], records.messages["kthread"]
    flags[0] |= lib.CL_TRACE_UNSENT
    flags[1] &= ~numpy.uint32(lib.CL_TRACE_ANSWERED)
    flags[2] |= lib.CL_TRACE_STALLED
    kthread[3] = 2
    of_fourth = records.bursts["begin"] == records.messages["begin"][4] + records.messages["sent"][4]
    records = replace(records, bursts=records.bursts[~of_fourth])
    seen = table(records, NAMES, HZ)
    for path in (bursts.TX_RING, bursts.TO_THE_NIC):
        assert not seen.stages[path][:5].any()
        assert (seen.stages[path][5:] > 0).all()
    assert numpy.allclose(sum(seen.stages.values()), seen.total)
    assert numpy.allclose(seen.total[:5], records.messages["sent"][:5] * 1e6 / HZ)
    without = table(replace(records, bursts=records.bursts[:0]), NAMES, HZ)
    assert bursts.TX_RING not in without.stages
    assert numpy.allclose(without.total, records.messages["sent"] * 1e6 / HZ)


def test_they_are_joined_and_kept_as_other_records() -> None:
    records = made()
    again = records_of(raw(joined([records, records])))
    assert len(again.bursts) == 2 * len(records.bursts)
    assert number(again) == 2 * number(records)
