"""The threads of numerical libraries in a process whose cores are given by an iokernel."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import threadpoolctl

from corelane.libos.batch_work import thread_pools
from corelane.libos.batch_work.thread_pools import WISHES, keep_to_one

THREADS = """
import numpy as np
from corelane.libos.batch_work.thread_pools import keep_to_one
from threadpoolctl import ThreadpoolController, threadpool_info

def threads():
    return max(pool["num_threads"] for pool in threadpool_info())

print(threads())
keep_to_one()
keep_to_one()
print(threads())
ThreadpoolController().limit(limits=2)
keep_to_one()
print(threads())
import colorsys  # a new module: a library may have come with it
keep_to_one()
print(threads())
"""


def told(env: dict[str, str]) -> list[int]:
    clean = {k: v for k, v in os.environ.items() if k not in WISHES}
    done = subprocess.run([sys.executable, "-c", THREADS], env=clean | env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a pool of one CPU has one thread: give two CPUs")
def test_pools_have_one_thread_and_are_looked_at_again_with_new_modules() -> None:
    before, after, unseen, again = told({})
    assert before > 1
    assert (after, unseen, again) == (1, 2, 1)


@pytest.mark.parametrize("name", WISHES)
def test_who_sets_the_number_keeps_it(name: str) -> None:
    numbers = told({name: "2"})
    assert numbers == [numbers[0]] * 2 + [2, 2]


def test_a_library_whose_path_is_no_text_is_said(monkeypatch: Any, caplog: Any) -> None:
    def fail() -> None:
        b"/tmp/\xff.so".decode()

    for name in WISHES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threadpoolctl, "ThreadpoolController", fail)
    monkeypatch.setattr(thread_pools, "_seen", -1)
    keep_to_one()
    keep_to_one()
    assert [r.message for r in caplog.records if "OMP_NUM_THREADS" in r.message] == [caplog.records[-1].message]


def test_nothing_is_loaded_for_it() -> None:
    """Importing libos is cheap; the library that knows the pools comes with the first job."""
    code = "import sys, corelane.libos.batch_work.work; sys.exit('threadpoolctl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
