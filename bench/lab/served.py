"""A load that is recorded while an application serves it: `spin` behind an iokernel, on one core of this machine.

Its requests come from the load generator, of two lengths, and the application writes each of them down
(libos/trace). What becomes a job of them, and what of a request is its work, recorded.py says; `corelane lab record
--pid` makes the same load of the same requests.
"""

from __future__ import annotations

import time

import numpy as np

from ...drivers.nic.loadgen.loadgen import Echo
from ...libos.trace.pieces import joined
from ...libos.trace.stages import table
from ...runtime.errors import CorelaneError
from ...runtime.trace import Segment
from ..harness import rig
from . import loads
from .recorded import load_of_requests

PORT = 9001
LOOK_S = 0.02  # a ring of 4096 records holds a tenth of a second of the most that such requests can be
WHOLE = 0.95  # of the requests that were sent, at least; the others were lost, or their core stood still
SETTLES_S = 0.05  # until the first requests: the application is attached, and its addresses are known


def recorded(
    cores: tuple[int, int], at: float, short_us: float, long_us: float, long_share: float, seconds: float
) -> loads.Load:
    """What the application got for so long. cores: the loop's, and the application's. at: the load that is asked of it;
    long_share: part of the requests that take long_us, drawn beforehand. CorelaneError: it did not get all of it."""
    mean_us = (1 - long_share) * short_us + long_share * long_us
    traffic = Echo(service_us=short_us, long_us=long_us, long_fraction=long_share)
    words = ["spin", "--trace", "full", "--option", "distribution=request"]
    with rig.iokernel(words, cores, traffic=traffic, port=PORT) as made:
        assert made.process is not None
        time.sleep(SETTLES_S)
        with Segment.of_process(made.process.pid) as segment:
            segment.skip()
            made.generator.begin(at / mean_us * 1e6, seconds, 0.0, 1)
            parts = []
            while made.generator.running:
                time.sleep(LOOK_S)
                parts.append(segment.read())
            made.generator.wait()
            parts.append(segment.read())
            load = load_of_requests(table(joined(parts), segment.services(), segment.hz), seconds)
        asked = made.generator.result().sent
    if len(load) < WHOLE * asked:
        why = f"the application wrote down {len(load)} of {asked} requests: others had its core"
        raise CorelaneError("record a load", why, "record while nothing else runs")
    return load


def stretches(load: loads.Load, cores: int, number: int, length_ns: int) -> loads.Load:
    """Of a load that one core served what `cores` cores are to serve: as many stretches of it, from stretch number *
    cores on, begin together. So each core has as much to do as the one had. CorelaneError: there is nothing there."""
    first = number * cores
    rows = load.jobs[(load.jobs["at_ns"] >= first * length_ns) & (load.jobs["at_ns"] < (first + cores) * length_ns)]
    if not len(rows):
        raise CorelaneError("run a recorded load again", f"the application got nothing in stretch {first}", "once more")
    rows = rows.copy()
    rows["at_ns"] %= length_ns
    return loads.Load(load.kinds, rows[np.argsort(rows["at_ns"], kind="stable")], load.said)
