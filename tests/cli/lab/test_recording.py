"""From moves of cores to a load: arrivals when it was decided, work as long as the core was had, and no names."""

import numpy as np
import pytest

from corelane.bench.lab import loads
from corelane.bench.lab.recorded import Stretch, load_of
from corelane.cli.lab.recording import stretches
from corelane.cli.trace.recording import Recording
from corelane.iokernel._native import lib
from corelane.iokernel.control.moves import Move
from corelane.runtime.errors import CorelaneError

HZ = 1_000_000_000


def test_stretches_become_jobs_without_names(tmp_path):
    load = load_of([Stretch(50, 400, "b"), Stretch(10, 30, "secret"), Stretch(90, 200, "b")], 1.0)
    assert load.jobs["at_ns"].tolist() == [0, 40, 80]
    assert load.jobs["work_ns"].tolist() == [30, 400, 200]
    assert load.classes.tolist() == [1, 0, 0]
    loads.write(tmp_path / "a", load)
    assert b"secret" not in (tmp_path / "a").read_bytes()
    assert "secret" not in repr(loads.read(tmp_path / "a"))


def test_many_applications_share_the_last_class():
    load = load_of([Stretch(i, 100 - i, f"a{i}") for i in range(20)], 1.0)
    assert load.classes.max() == 15
    assert np.bincount(load.classes)[15] == 5


def test_nothing_to_record():
    with pytest.raises(CorelaneError, match="no core changed hands in 2 s"):
        load_of([Stretch(0, 0, "a")], 2)


def test_who_had_a_core_from_when_it_was_decided():
    """A job had it, then kv for 38 us, then the job again."""
    made = Recording(0, 100_000, HZ)

    def moved(at, old, new):
        wanted = Move(at, old, new, lib.CL_IO_LOG_WANTED, lib.CL_IO_STEP_REQUEST, core=5)
        steps = {"decided": at + 100, "stored": at + 150, "lost": at + 900, "left": at + 1000, "back": at + 2100}
        return [wanted, Move(at + 2200, new, new, lib.CL_IO_LOG_DONE, lib.CL_IO_STEP_REQUEST, core=5, **steps)]

    made.add([*moved(10_000, 7, 3), *moved(50_000, 3, 7)], 0)
    for slot, name in ((3, "kv.0"), (7, "job.0")):
        made.learn(slot, 0, name)
    found = [(one.at_ns, one.length_ns, one.owner) for one in stretches(made)]
    assert found == [(0, 10_100, "job"), (10_100, 38_000, "kv"), (50_100, 47_900, "job")]
