"""The applications that share a core in the benchmarks: they count, pause, note, and end with who started them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest
from cltest import wait_until

from corelane.bench.tenant import shared
from corelane.bench.tenant.tenant import Tenant
from corelane.runtime.clock import tsc
from corelane.runtime.errors import CorelaneError

CORES = sorted(os.sched_getaffinity(0))
two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores that this process may use: taskset -pc 0-1 $$")


@pytest.mark.parametrize(
    ("code", "policy"),
    [
        ("c", "other"),
        ("c", "nice 19"),
        ("c", "idle"),
        pytest.param("numba", "other", marks=pytest.mark.soak(takes_s=3)),  # make test has such a job on an iokernel
    ],
)
def test_a_plain_job_counts_and_ends(code: str, policy: str) -> None:
    with Tenant("batch", cpu=CORES[-1], code=code, policy=policy) as job:
        wait_until(lambda: job.work > 3, what="some work", deadline_s=60)
        threads = [int(t) for t in os.listdir(f"/proc/{job.pid}/task")]
        pinned = [t for t in threads if os.sched_getaffinity(t) == {CORES[-1]}]
        if len(CORES) > 1:
            assert len(pinned) == 1
            idle = os.sched_getscheduler(pinned[0]) == os.SCHED_IDLE
            assert idle == (policy == "idle")
            own = os.getpriority(os.PRIO_PROCESS, 0)  # this run may be niced
            assert os.getpriority(os.PRIO_PROCESS, pinned[0]) == (19 if policy == "nice 19" else own)
        pid = job.pid
    assert not os.path.exists(f"/proc/{pid}")


def test_a_job_pauses() -> None:
    with Tenant("batch", cpu=CORES[-1], paused=True) as job:
        assert job.work == 0
        with job.working():
            wait_until(lambda: job.work > 0, what="some work")
        assert job.paused


@two_cores
@pytest.mark.parametrize("code", ["c", "numba"])
def test_a_job_on_an_iokernel_ends_and_begins_with_its_turns(code: str) -> None:
    apps = {"batch": shared.batch()}
    with shared.shared((CORES[0], CORES[1]), apps=apps) as made:
        job = made.tenant("batch", "batch", code=code, paused=True)
        assert job.work == 0
        for _ in range(3):
            before = job.work
            with job.working():
                wait_until(lambda before=before: job.work > before, what="work in a turn", deadline_s=60)
            wait_until(lambda: made.counts()["moves"] > 0, what="a core for it")
            cores = next(app["cores"] for app in made.kernel.stats()["apps"] if app["name"] == "batch")
            assert cores["core_s"] > 0
        done = job.work
        with job.working():
            wait_until(lambda: job.work > done, what="work in a last turn", deadline_s=60)


def test_a_tenant_without_an_iokernel_says_so() -> None:
    with pytest.raises(CorelaneError, match="iokernel"):
        Tenant("batch", socket="/nowhere/io.sock")


@two_cores
def test_two_applications_on_one_core() -> None:
    apps = {"witness": shared.latency(), "batch": shared.batch()}
    with shared.shared((CORES[0], CORES[1]), apps=apps, policy="shenango") as made:
        witness, job = made.tenant("witness", "witness"), made.tenant("batch", "batch")
        crowd = made.tenant("crowd", "crowd", crowd=2)
        assert {a["name"] for a in made.kernel.stats()["apps"]} == {"witness", "batch", "crowd", "crowd-1"}
        start, before = tsc(), witness.calls
        for _ in range(10):  # one whole round is enough: a machine that does something else may end others too early
            point, gained = made.beside("witness", job, 2000, 0.2)
            if point.answered == point.sent:
                break
        assert point.answered == point.sent > 0
        assert gained["work"] >= 0
        assert gained["core_s"] >= 0
        wait_until(lambda: job.work > 0, what="work of the job", deadline_s=60)
        stamps = witness.stamps(before)
        assert len(stamps) >= point.sent  # the warm-up comes on top
        assert stamps == sorted(stamps)
        assert stamps[0] > start
        assert made.counts()["decisions"] > 0
        assert made.decision_time().count > 0
        moves = made.moves()
        assert [m.tsc for m in moves] == sorted(m.tsc for m in moves)
        assert crowd.work == 0


def test_what_a_job_gains_after_a_load_does_not_count() -> None:
    """Nor what it gains before the context around the load has begun."""
    work, order = 0.0, []

    @contextlib.contextmanager
    def around() -> Iterator[None]:
        nonlocal work
        order.append("around")
        work += 1e6
        yield
        order.append("over")

    def read() -> dict[str, float]:
        order.append("read")
        return {"work": work}

    gained = shared.Gained(read, 0.01, around())
    with gained:
        work += 1e9
        order.append("load is over")
    assert gained.per_s == {"work": 0.0}
    assert order == ["around", "read", "read", "load is over", "over"]
