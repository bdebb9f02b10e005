"""The batch application: its kernels compute what they say, count it, and end when told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from cltest import wait_until

from corelane.apps import registry
from corelane.apps.batch import Batch
from corelane.drivers.nic.memory import memory_link
from corelane.libos import Runtime
from corelane.runtime.errors import CorelaneError


@contextmanager
def working(kthreads: int = 1, **options: Any) -> Iterator[Batch]:
    """The application at work; its jobs have returned at the end."""
    app = registry.load("batch")
    nic, end = memory_link((kthreads, 1), ipv4=("10.77.0.2", "10.77.0.1"), ipv4_prefix=16)
    with nic, end, Runtime(nic=nic, kthreads=kthreads, poll="block") as runtime:
        service = app.setup(runtime, app.options(**options))
        runtime.start()
        yield service
        service.end()
        for job in service.jobs:
            job.result(60)
        assert runtime.stop() == 0, "no uthread is left"


def units_of(service: Batch) -> int:
    return service.stats()["units"]


def test_matmul_is_numpys() -> None:
    with working(kernel="matmul", size=32) as service:
        wait_until(lambda: units_of(service) >= 3, 60)
    for a, b, c in service.arrays:
        np.testing.assert_allclose(c, a @ b, rtol=1e-12)


def test_stencil_is_as_many_sweeps_as_were_counted() -> None:
    with working(kernel="stencil", size=16, seed=5) as service:
        wait_until(lambda: units_of(service) >= 3, 60)
    rng = np.random.default_rng(5)
    a, b = rng.random((16, 16)), rng.random((16, 16))

    def sweep(source: Any, target: Any) -> None:
        target[1:-1, 1:-1] = 0.25 * (source[:-2, 1:-1] + source[2:, 1:-1] + source[1:-1, :-2] + source[1:-1, 2:])

    for _ in range(min(units_of(service), 20_000)):  # by then it stands still
        sweep(a, b)
        sweep(b, a)
    np.testing.assert_allclose(service.arrays[0][0], a, rtol=1e-9)


def test_hash_is_fnv_1a() -> None:
    with working(kernel="hash", size=8) as service:
        wait_until(lambda: units_of(service) >= 3, 60)
    a, _, c = service.arrays[0]
    state = 0xCBF29CE484222325
    for byte in a.tobytes():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    assert c[0, 0] == state % 2**32


def test_a_job_on_each_kthread_and_rates_from_counts() -> None:
    with working(kthreads=2, size=16) as service:
        wait_until(lambda: all(service.units(job) > 0 for job in range(2)), 60)
        text, numbers = service.progress()
        assert numbers["kernel"] == "matmul"
        assert 0 < numbers["units"] <= units_of(service)
        assert numbers["per_s"] == pytest.approx(numbers["mean_per_s"], rel=0.5)
        assert "matmul/s" in text
        assert service.stats()["jobs"] == 2
        assert service.ports == ()


@pytest.mark.parametrize(
    ("options", "said"),
    [({"kernel": "sort"}, "one of matmul, stencil, hash"), ({"size": 3}, "sizes 4 to 4096"), ({"jobs": -1}, "jobs -1")],
)
def test_options_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(CorelaneError, match=said), working(**options):
        pass
