"""Applications on cores that an iokernel manages, with storage: the parts together."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from corelane.drivers.blk.area import AreaBlk
from corelane.iokernel import Iokernel
from corelane.iokernel._native import lib
from corelane.iokernel.areas.areas import Areas, DirectoryStore
from corelane.runtime import control

CPUS = sorted(os.sched_getaffinity(0))
UNIT = 4096


@pytest.mark.skipif(len(CPUS) < 2, reason="needs a CPU for the iokernel's loop and one to give away")
@pytest.mark.parametrize("kthreads", [1, 2])
def test_uthreads_write_an_area_on_cores_that_come_and_go(
    c_program: Callable[..., Callable[..., str]], tmp_path: Path, kthreads: int
) -> None:
    path = str(tmp_path / "s")
    program = c_program("tests/libos/storage/c/area.c")
    areas = Areas(DirectoryStore(str(tmp_path / "areas")))
    cpus = {"loop_cpus": [CPUS[0]], "worker_cpus": [CPUS[-1]]}
    with Iokernel(path, poll="adaptive", policy="delay", areas=areas, **cpus) as kernel:
        control.area(path, lib.CL_CONTROL_AREA_CREATE, "log", 256 * UNIT)
        assert program(path, "log", kthreads, 32).startswith("done")
        assert kernel.stats()["control"]["areas_opened"] == 1
        with AreaBlk(path, "log") as blk:
            for block in range(0, 256, 16):
                assert blk.read(block * UNIT, UNIT) == (block ^ 0x5CA1AB1E).to_bytes(8, "little") * (UNIT // 8)


@pytest.mark.skipif(len(CPUS) < 2, reason="needs a CPU for the iokernel's loop and one to give away")
@pytest.mark.parametrize("kthreads", [1, 2])
def test_who_waits_for_the_log_gives_its_core_away_and_gets_it_back(
    c_program: Callable[..., Callable[..., str]], tmp_path: Path, seed: int, kthreads: int
) -> None:
    path = str(tmp_path / "s")
    program = c_program("tests/libos/storage/log/c/cores.c")
    with Iokernel(path, poll="adaptive", policy="delay", loop_cpus=[CPUS[0]], worker_cpus=[CPUS[-1]]):
        assert program(path, seed, kthreads).endswith("ok\n")
