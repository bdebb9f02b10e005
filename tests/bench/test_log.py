"""bench log: every cut of the promised run, the loops on a file of the test's own, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from corelane.bench import log
from corelane.bench._native import ffi, lib
from corelane.bench.baseline import durable
from corelane.bench.log import FIXED, Files, where
from corelane.cli.main import main


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    made = Files(tmp_path, 0.1)
    made.cpu = min(os.sched_getaffinity(0))
    yield made
    made.blk.close()


@pytest.mark.parametrize("in_flight", [1, 4])
def test_every_cut_of_a_thousand_appends_recovers(in_flight: int, seed: int) -> None:
    out, err = ffi.new("struct cl_bench_log_cuts *"), ffi.new("char[256]")
    assert lib.cl_bench_log_cuts(seed, 1000, in_flight, out, err) == 0, ffi.string(err)
    assert out.appends == 1000
    assert out.recovered == out.cuts == out.sectors > 1000
    assert out.torn > 0


@pytest.mark.parametrize("what", log.BARE.values())
def test_bare_loops_write(files: Files, what: int) -> None:
    got = files.bare(what, 0.02)
    assert got.operations == len(got.ns) > 0
    assert all(ns > 0 for ns in got.ns)


def test_appends_share_flushes_and_wrap_around(files: Files) -> None:
    one = files.append(1, 0.02)
    assert one.flushes >= one.operations > 0
    for fixed in FIXED.values():
        many = files.append(16, 0.02, fixed)
        assert many.operations >= 16
        assert many.flushes <= many.operations


def test_recovery_reads_what_was_filled(files: Files) -> None:
    for ours, device, records in files.recovery():
        assert ours > 0
        assert device > 0
        assert records > 1000


@pytest.mark.parametrize("store", [durable.Sqlite, durable.Lmdb, durable.Redis])
def test_other_stores_append(store: type, tmp_path: Path) -> None:
    missing = {durable.Lmdb: durable.lmdb_missing, durable.Redis: durable.redis_missing}.get(store, lambda: "")()
    if missing:
        pytest.skip(missing)
    made = store(tmp_path)
    try:
        assert durable.timed(made.append, 0.02)
    finally:
        made.close()


def test_memory_is_no_disk(capsys: pytest.CaptureFixture[str]) -> None:
    if where("/dev/shm")[0] != "tmpfs":
        pytest.skip("/dev/shm is no tmpfs here")
    assert main(["bench", "log", "--seconds", "0.1", "--directory", "/dev/shm"]) == 0
    assert "nothing is durable: choose a disk with --directory" in capsys.readouterr().out
