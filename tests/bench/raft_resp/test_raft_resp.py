"""The parts of the benchmark of raft-resp. No speed is asserted; tests/bench/test_smoke.py runs it as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from corelane.bench.harness.goals import GOALS
from corelane.bench.harness.session import Session
from corelane.bench.raft import nodes
from corelane.bench.raft.arms import Slot
from corelane.bench.raft_resp import client, raft_resp
from corelane.drivers.linux import netns
from corelane.runtime.errors import CorelaneError

TABLE = (
    '"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"\n'
    '"SET","12500.00","0.070","0.024","0.063","0.119","0.159","0.311"\n'
)


def test_what_redis_benchmark_says_is_read() -> None:
    assert client.parse(TABLE, 1000) == Slot(63.0, 159.0, 12500.0, 1000)
    with pytest.raises(CorelaneError, match="MOVED 0"):
        client.parse(TABLE.splitlines()[0], 1000, "Error from server: MOVED 0 10.77.0.12:6379")
    with pytest.raises(CorelaneError, match="it says nothing"):
        client.parse("", 1000)


def test_figures_are_ratios_round_by_round_with_their_bounds_beside() -> None:
    def slots(p50_us: float, per_s: float) -> list[Slot]:
        return [Slot(p50_us * turn, 2 * p50_us, per_s * turn, 10) for turn in (1, 2, 3)]

    got = {
        raft_resp.arm_name(system, connections): slots(p50_us / connections, 100.0 * connections * 10 / p50_us)
        for system, p50_us in ((raft_resp.OURS, 400.0), (raft_resp.REDIS, 200.0), (raft_resp.ON_TMPFS, 100.0))
        for connections in raft_resp.CONNECTIONS
    }
    got |= {"three raw writes, polling": slots(100.0, 1.0), "three raw writes, sleeping": slots(200.0, 1.0)}
    session = Session("raft_resp", seconds=0.1)
    raft_resp.judge(session, got)
    session.finish(raft_resp.FIGURES)
    figures = session.figures
    assert figures["raft-resp.over_aof"]["value"] == pytest.approx(0.5)
    assert figures["raft-resp.over_aof"]["beside"] == {"bound: ours, on tmpfs": pytest.approx(2.0)}
    assert figures["raft-resp.p50_over_disk"]["value"] == pytest.approx(4.0)
    assert figures["raft-resp.p50_over_disk"]["beside"] == {"bound: ours, on tmpfs, and that write": pytest.approx(2.0)}
    assert figures["raft-resp.over_etcd"]["value"] is None
    assert all(GOALS[name].goal is None for name in raft_resp.FIGURES)


@pytest.mark.root
def test_three_nodes_and_a_redis_server_take_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "BYTES", {"log": 32 << 20, "memory": 4 << 20, "relay": 4 << 20})
    monkeypatch.setattr(client, "FIRST_SETS", 50)
    if why := netns.missing() or client.missing() or raft_resp.redis.missing():
        pytest.skip(why)
    cores = Session("raft_resp", seconds=0.1).two_cores
    (tmp_path / "logs").mkdir()
    for slot in (
        raft_resp.ours_slot(cores, tmp_path / "logs", 5, 0.05),
        raft_resp.redis_slot(cores, tmp_path, 5, 0.05),
    ):
        assert slot.n >= 50
        assert slot.per_s > 0
        assert 0 < slot.p50_us <= slot.p99_us
