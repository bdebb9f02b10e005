"""What is no load is refused in a sentence."""

import random

import numpy as np
import pytest

from corelane.bench.lab import loads
from corelane.bench.lab.loads import Kind, Load, Phase, jobs
from corelane.bench.lab.world import Costs, Machine
from corelane.runtime.errors import CorelaneError

ONE = jobs([0], [10.0])


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Kind(cls=16), "classes are 0 to 15"),
        (Kind(min_cores=2), "wants 2 to 1 cores"),
        (Kind(min_cores=0), "wants 0 to 1 cores"),
        (Kind(stages=(0.5, 0.5)), "one core for each stage"),
        (Kind(min_cores=9, max_cores=9, stages=(0.1,) * 9), "up to 8 parts"),
        (Kind(phases=(Phase(0.5),)), "sum to 1"),
        (Kind(phases=()), "1 to 4"),
        (Kind(phases=(Phase(1.0, 0.0),)), "use in"),
        (Kind(phases=(Phase(1.0, 1.0, (-1, 0, 0, 0)),)), "demands of 0 or more"),
        (Kind(serial=1.0), "serial in"),
        (Kind(max_batch=0.5), "serial in"),
        (Kind(batch_item_ns=5, max_cores=2), "one core and one phase"),
    ],
)
def test_kinds_that_cannot_be(kind, why):
    with pytest.raises(CorelaneError, match=why):
        Load((kind,), ONE)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (jobs([], []), "no jobs"),
        (jobs([5, 4], [1.0, 1.0]), "not in the order"),
        (jobs([-1], [1.0]), "not in the order"),
        (jobs([0], [0.0]), "work_ns is 0"),
        (jobs([0], [np.inf]), "work_ns is inf"),
        (jobs([0], [1.0], kind=1), "kind that is not there"),
        (jobs([0], [1.0], weight=0.0), "weight is 0"),
        (jobs([0], [1.0], deadline_ns=-1), "deadline_ns is -1"),
    ],
)
def test_jobs_that_cannot_be(rows, why):
    with pytest.raises(CorelaneError, match=why):
        Load((Kind(),), rows)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"cores": 0}, "0 cores"),
        ({"cores": 4, "loops": 5}, "5 loops"),
        ({"cores": 3, "pairs": True}, "in pairs"),
        ({"cores": 2, "speeds": (1.0, 0.0)}, "above 0"),
        ({"cores": 2, "speeds": (1.0, float("nan"))}, "above 0"),
        ({"cores": 2, "speeds": (float("inf"),)}, "above 0"),
        ({"cores": 2, "capacity": (1.0,)}, "4 numbers"),
        ({"cores": 2, "costs": Costs(move_ns=-1)}, "0 or more"),
        ({"cores": 2, "costs": Costs(move_ns=10**18)}, "a second at most"),
        ({"cores": 2, "seats": 0}, "0 seats"),
    ],
)
def test_machines_that_cannot_be(given, why):
    with pytest.raises(CorelaneError, match=why):
        Machine(**given)


def test_files_that_are_no_loads(tmp_path):
    with pytest.raises(CorelaneError, match="No such file"):
        loads.read(tmp_path / "none")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(CorelaneError, match="it is no load file"):
        loads.read(tmp_path / "text")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(CorelaneError, match="it is no load file"):
        loads.read(tmp_path / "other.npz")


def test_a_load_file_that_was_damaged_is_none_or_is_read(tmp_path):
    """Cut anywhere, and with bytes changed in the archive, its members' headers and their data."""
    path = tmp_path / "load"
    loads.write(path, Load((Kind(),), ONE))
    whole, draw = path.read_bytes(), random.Random(1)
    changed = [whole[: draw.randrange(len(whole))] for _ in range(40)]
    for _ in range(200):
        data = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        changed.append(bytes(data))
    refused = 0
    for bad in changed:
        path.write_bytes(bad)
        try:
            loads.read(path)
        except CorelaneError:
            refused += 1
    assert refused > len(changed) // 2
