"""Built-in applications on a real runtime, embedded on a memory link and loaded by the generator."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from corelane.apps import registry
from corelane.apps.spin import Options as SpinOptions
from corelane.apps.spin import Spin
from corelane.drivers.nic.loadgen.loadgen import Echo, Limits, Loadgen, Memcached
from corelane.drivers.nic.memory import memory_link
from corelane.libos import Runtime
from corelane.runtime.errors import CorelaneError


@contextmanager
def loaded(name: str, traffic: Any, kthreads: int = 1, **options: Any) -> Iterator[tuple[Any, Loadgen, Runtime]]:
    """The application's service, a generator that asks it, and its runtime; every buffer must be back at the end."""
    app = registry.load(name)
    chosen = app.options(**options)
    server, client = memory_link((kthreads, 1), ipv4=("10.77.0.2", "10.77.0.1"), ipv4_prefix=16)
    with server, client:
        total = server.buffers_free
        with Runtime(nic=server, kthreads=kthreads, poll="block") as runtime:
            service = app.setup(runtime, chosen)
            runtime.start()
            with Loadgen(traffic, server_mac=server.mac, server_port=chosen.port, limits=Limits(drain_s=5.0)) as load:
                load.start_client(client, spin=False)
                yield service, load, runtime
            runtime.stop()
        service.close()
        for end in (server, client):  # replies that came after the last look
            for queue in range(end.queues):
                while end.recv(queue=queue):
                    pass
        assert server.buffers_free == total


@pytest.mark.parametrize("kthreads", [1, 4])
def test_kv_under_load(kthreads: int) -> None:
    """GETs and SETs of a preloaded key space: every answer is right, nothing is missed, the counters agree."""
    traffic = Memcached(keys=2000, get_fraction=0.7)
    with loaded("kv", traffic, kthreads, memory_bytes=32 << 20) as (service, load, _):
        result = load.run(5000, 1.0, warmup_s=0)
        assert (result.wrong, result.errors, result.misses) == (0, 0, 0)
        assert result.answered == result.sent == result.hits + result.stored
        stats = service.stats()
        assert stats["items"] == 2000
        assert stats["datagrams"] == stats["answered"] == stats["cmd_get"] + stats["cmd_set"]
        assert stats["cmd_get"] == stats["get_hits"]
        # A GET that meets a SET of its key, whose kthread lost the CPU meanwhile, is answered the long way.
        assert 0.99 * stats["cmd_get"] <= stats["fast_gets"] <= stats["cmd_get"]
        service.store.check()


def test_kv_with_long_values() -> None:
    """Values near the end of a datagram take two datagrams to come back, and come back right."""
    with loaded("kv", Memcached(keys=200, value_bytes=1380)) as (service, load, _):
        result = load.run(1000, 0.5, warmup_s=0)
        assert (result.wrong, result.errors) == (0, 0)
        assert result.answered == result.sent
        assert service.stats()["split"] > 0
        assert service.stats()["cut"] == 0


def test_spin_under_load() -> None:
    with loaded("spin", Echo(), distribution="constant", mean_us=5.0) as (service, load, _):
        result = load.run(1000, 0.5, warmup_s=0)
        assert result.answered == result.sent > 0
        assert service.stats()["requests"] == result.sent


def test_spin_spends_what_the_requests_say_and_the_two_kinds_are_told_apart() -> None:
    traffic = Echo(service_us=2.0, long_us=300.0, long_fraction=0.1)
    with loaded("spin", traffic, distribution="request") as (service, load, _):
        result = load.run(500, 0.5, warmup_s=0)
        assert result.answered == result.sent > 0
        assert result.short is not None
        assert result.long is not None
        assert result.long.count > 0
        assert result.short.count + result.long.count == result.latency.count == result.sent
        # No speed: a request takes at least what it asks for.
        assert result.long.percentile_us(0) >= 300 > 2
        assert service.stats()["requests"] == result.sent


def test_spin_serves_short_and_long_by_type() -> None:
    traffic = Echo(service_us=1.0, long_us=40.0, long_fraction=0.1)
    with loaded("spin", traffic, distribution="request", short_most_us=1.0) as (service, load, runtime):
        result = load.run(1000, 0.5, warmup_s=0)
        assert result.answered == result.sent > 0
        assert result.short is not None
        assert result.short.count > 0
        assert service.stats()["requests"] == result.sent
        stats = runtime.stats()
        assert (stats.net["type_errors"], stats.dropped["type_queue_full"]) == (0, 0)


def test_spin_times_follow_their_distribution() -> None:
    from corelane.runtime.clock import default_clock

    hz = default_clock().hz

    def times_us(**options: Any) -> list[float]:
        spin = Spin(SpinOptions(**options))
        ticks = spin.times_ticks()
        spin.close()
        return [t / hz * 1e6 for t in ticks]

    assert {round(t, 2) for t in times_us(distribution="constant", mean_us=3.0)} == {3.0}
    drawn = times_us(distribution="exponential", mean_us=10.0, seed=4)
    assert sum(drawn) / len(drawn) == pytest.approx(10.0, rel=0.02)
    assert sum(t > 23.03 for t in drawn) / len(drawn) == pytest.approx(0.1, rel=0.05)
    drawn = times_us(distribution="bimodal", mean_us=1.0, long_us=100.0, long_part=0.1, seed=4)
    assert sum(t > 50 for t in drawn) / len(drawn) == pytest.approx(0.1, rel=0.05)
    assert times_us(seed=9) == times_us(seed=9) != times_us(seed=8)


@pytest.mark.parametrize("name", registry.names())
def test_every_application_describes_itself(name: str) -> None:
    app = registry.load(name)
    assert app.name == name
    assert app.help
    for field in dataclasses.fields(app.options):
        assert field.metadata["help"], field.name
        assert field.default is not dataclasses.MISSING


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("kv", {"memory_bytes": 1000}, "memory_bytes"),
        ("kv", {"port": 0}, "port 0"),
        ("spin", {"distribution": "normal"}, "'normal' is not known"),
        ("spin", {"mean_us": -1.0}, "service time"),
        ("spin", {"short_most_us": 1.0}, "types are for distribution=request"),
        ("spin", {"short_most_us": -1.0, "distribution": "request"}, "short_most_us is -1"),
        ("spin", {"short_most_us": 1.0, "distribution": "request", "short_target_us": 0}, "1 or more"),
        ("spin", {"distribution": "bimodal", "long_part": 2.0}, "its part from 0 to 1"),
    ],
)
def test_refusals(name: str, options: dict[str, Any], reason: str) -> None:
    app = registry.load(name)
    server, client = memory_link(ipv4=("10.77.0.2", "10.77.0.1"), ipv4_prefix=16)
    with server, client, Runtime(nic=server, poll="block") as runtime, pytest.raises(CorelaneError, match=reason):
        app.setup(runtime, app.options(**options))


def test_unknown_application() -> None:
    with pytest.raises(CorelaneError, match="one of: batch, echo, http, kv, raft-kv, raft-resp, resp, spin"):
        registry.load("web")
