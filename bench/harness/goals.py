"""Every figure that corelane promises: its name in the JSON documents, its goal, and which way is better.

A figure of which nothing was promised before it was measured has no goal: it is told, and not judged. Declared once,
here. A benchmark sets a figure by name; reports and tests read this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Sense = Literal["at least", "at most"]


@dataclass(frozen=True)
class Goal:
    """One promised figure.

    goal: the bound in the figure's unit; None: it is measured, and nothing was promised. sense: "at least" or "at most"
    the goal; without one, which way is better. unit: "x" for a ratio. meaning: one line for tables and reports.
    virtual: it is taken in virtual time. What the machine does beside the run does not change it.
    """

    name: str
    goal: float | None
    sense: Sense
    unit: str
    meaning: str
    virtual: bool = False

    @property
    def bench(self) -> str:
        """The part of the name before the dot: the subject. (See `registry.bench_of_figure` for the benchmark.)"""
        return self.name.split(".", 1)[0]

    def met(self, value: float) -> bool | None:
        """Whether `value` reaches the goal; None: there is none."""
        if self.goal is None:
            return None
        return value >= self.goal if self.sense == "at least" else value <= self.goal


def _table(*goals: Goal) -> dict[str, Goal]:
    return {g.name: g for g in goals}


GOALS: dict[str, Goal] = _table(
    Goal(
        "echo.p50_over_cacheline", 4.0, "at most", "x", "unloaded echo p50 over the memory NIC / cache-line round trip"
    ),
    Goal("echo.rps_per_core", 5e6, "at least", "1/s", "echo requests through one worker core"),
    Goal(
        "kv.get_rps_per_core", 4e6, "at least", "1/s", "kv GETs through one worker core (16 B / 64 B, 1 M, Zipf 0.99)"
    ),
    Goal("kv-tcp.rps_per_core", 1.8e6, "at least", "1/s", "kv GETs through one core over TCP, 1 000 connections"),
    Goal(
        "kv-tcp.over_memcached",
        15.0,
        "at least",
        "x",
        "the same over the memory NIC / stock memcached, one thread, Linux' TCP on a veth pair",
    ),
    Goal("kv-tcp.over_redis", 15.0, "at least", "x", "the same / redis-server on Linux' TCP on a veth pair"),
    Goal(
        "resp-durable.over_aof",
        3.0,
        "at least",
        "x",
        "durable SETs on 50 connections / redis-server with its append-only file, fsync always, one disk",
    ),
    Goal("resp-durable.p50_gain", 1.5, "at least", "x", "that redis-server's p50 of one connection / ours"),
    Goal("kv-tcp.p99_gain", 2.0, "at least", "x", "memcached's p99 at half of its rate / ours at that, on one link"),
    Goal("kv-tcp.bytes_per_item", 0.9, "at most", "x", "memory per item of 16 + 64 B / memcached's"),
    Goal(
        "posix.memcached_gain",
        2.0,
        "at least",
        "x",
        "stock memcached, one thread, 100 connections: GETs a second by run --posix over AF_XDP / on Linux' sockets",
    ),
    Goal("posix.redis_gain", 1.8, "at least", "x", "the same of redis-server"),
    Goal("posix.nginx_gain", 1.25, "at least", "x", "the same of nginx, one worker, a file of 1 KiB"),
    Goal("posix.memcached_memory", 6.0, "at least", "x", "that memcached on the memory NIC / on Linux' sockets"),
    Goal("posix.p99_gain", 2.0, "at least", "x", "its p99 at half of its rate on Linux' sockets: there / ours"),
    Goal("posix.foreign_ns", 3.0, "at most", "ns", "cost of a wrapped call on a descriptor of Linux"),
    Goal("posix.idle", 0.01, "at most", "cores", "an idle memcached by run --posix"),
    Goal(
        "asyncio.over_uvloop",
        2.2,
        "at least",
        "x",
        "TCP echo by protocols, 100 connections, answers a second: our loop / uvloop on Linux, one link and client",
    ),
    Goal("asyncio.streams_over_uvloop", 1.6, "at least", "x", "the same by asyncio's streams"),
    Goal("asyncio.over_uvloop_memory", 6.0, "at least", "x", "protocols, our loop on the memory NIC / uvloop on Linux"),
    Goal("asyncio.p99_over_uvloop", 0.7, "at most", "x", "p99 of that echo at half of uvloop's peak: ours / uvloop's"),
    Goal("asyncio.http_over_uvloop", 1.3, "at least", "x", "uvicorn, a small ASGI application: our loop / uvloop"),
    Goal("embed.numba_over_asyncio", 5.0, "at least", "x", "a rate limiter: a numba handler / our loop, memory NIC"),
    Goal("embed.replace_lost", 0.0, "at most", "requests", "lost while a server under 100 000/s is replaced 20 times"),
    Goal("start.cold_s", 1.0, "at most", "s", "`corelane up` and a cached numba application, to its first answer"),
    Goal("idle.asyncio_busy", 0.01, "at most", "cores", "an idle asyncio server on our loop"),
    Goal(
        "kv.over_memcached_udp",
        10.0,
        "at least",
        "x",
        "kv GETs over the memory NIC / stock memcached, one thread, kernel UDP behind a veth pair",
    ),
    Goal(
        "http.over_nginx",
        2.0,
        "at least",
        "x",
        "requests a second, 1 KiB, kept connections / nginx, one core, same link",
    ),
    Goal("http.close_over_nginx", None, "at least", "x", "the same with a connection for each request"),
    Goal("http.mib_over_nginx", None, "at least", "x", "the same with files of 1 MiB"),
    Goal("http.tls_over_nginx", None, "at least", "x", "the same over TLS"),
    Goal("afxdp.p50_over_reflector", 1.15, "at most", "x", "echo p50 over AF_XDP, embedded / raw AF_XDP reflector"),
    Goal("afxdp.linux_spin_over_ours", 1.3, "at least", "x", "p50 of a spinning Linux UDP server / ours"),
    Goal("afxdp.linux_block_over_ours", 2.0, "at least", "x", "p50 of a blocking Linux UDP server / ours"),
    Goal(
        "stealing.skewed_gain",
        None,
        "at least",
        "x",
        "throughput with / without stealing, one busy kthread, worst set",
    ),
    Goal("threads.yield_ns", 40.0, "at most", "ns", "uthread yield"),
    Goal("threads.spawn_join_ns", 90.0, "at most", "ns", "uthread spawn and join"),
    Goal("threads.mutex_ns", 20.0, "at most", "ns", "uncontended mutex lock and unlock"),
    Goal("threads.condvar_ns", 80.0, "at most", "ns", "condition variable hand-over"),
    Goal("threads.pthread_over_ours", 10.0, "at least", "x", "pthread / ours, smallest of yield, spawn+join, condvar"),
    Goal("handlers.numba_over_c", 0.95, "at least", "x", "throughput of a numba handler / the C handler"),
    Goal("handlers.python_rps", 400e3, "at least", "1/s", "requests through a Python callable"),
    Goal(
        "handlers.python_over_asyncio",
        4.0,
        "at least",
        "x",
        "the same, over the memory NIC / an asyncio UDP server on Linux behind a veth pair",
    ),
    Goal(
        "isolation.flood_over_silent",
        1.1,
        "at most",
        "x",
        "victim's p99 beside a flooding neighbour / beside one that is as busy and sends nothing",
    ),
    Goal(
        "isolation.two_over_silent",
        1.1,
        "at most",
        "x",
        "the same beside two flooding neighbours / beside two that are as busy and send nothing",
    ),
    Goal(
        "isolation.limited_over_silent",
        1.1,
        "at most",
        "x",
        "the same beside a flood that is limited to 50 000 frames and 10 MB a second / beside a silent one as busy",
    ),
    Goal(
        "hostile.p99_ratio",
        1.5,
        "at most",
        "x",
        "victim's p99 (middle 10 ms windows) under the worst attack / alone; two cores: / beside neighbours as busy",
    ),
    Goal("hostile.attach_ms", 100.0, "at most", "ms", "longest time that an honest application's attach took"),
    Goal("memory.used_over_needed", 1.5, "at most", "x", "PSS of idle application and iokernel / rings and buffers"),
    Goal("memory.c_app_mib", 64.0, "at most", "MiB", "PSS of an idle C application and the iokernel, by default"),
    Goal("idle.busy_fraction", 0.02, "at most", "core", "busy fraction of idle iokernel, of idle application (larger)"),
    Goal(
        "probes.overhead_geomean",
        0.02,
        "at most",
        "x",
        "probed over plain run time, less 1: mean without kernels that come out faster",
    ),
    Goal("probes.overhead_worst", 0.08, "at most", "x", "the same, of the worst kernel"),
    Goal("probes.gap_p99_us", 2.0, "at most", "us", "time between two looks at the flag, worst kernel's p99"),
    Goal(
        "sim.erlang_error",
        0.01,
        "at most",
        "x",
        "mean wait against Erlang-C, 1 to 64 servers, by control variate: largest relative error",
    ),
    Goal(
        "sim.box_p50_error",
        0.1,
        "at most",
        "x",
        "simulator's p50 / this machine's on the same requests, less 1: largest, where machine and canary can tell",
    ),
    Goal("sim.box_p99_error", 0.1, "at most", "x", "the same of p99"),
    Goal("sim.box_share_error", 0.1, "at most", "core", "batch work beside those loads: simulator less machine"),
    Goal(
        "handoff.ask_p50_us",
        2.0,
        "at most",
        "us",
        "a busy core, probed each 100 ns, to another process: to its first instruction, p50",
    ),
    Goal("handoff.ask_p99_us", 4.0, "at most", "us", "the same, p99"),
    Goal("handoff.interrupt_over_ask", 5.0, "at least", "x", "better of signal and futex over a busy core / ask, p50"),
    Goal(
        "allocator.decision_ns",
        500.0,
        "at most",
        "ns",
        "iokernel time for one decision over 16 applications, 14 of them at rest, p50",
    ),
    Goal(
        "colocate.low_p99_added_us",
        4.0,
        "at most",
        "us",
        "kv's p99 (median of 10 ms windows) at 50 000/s beside batch less alone",
    ),
    Goal("colocate.low_batch_share", 0.75, "at least", "x", "batch work beside that load / alone on the core"),
    Goal(
        "colocate.linux_p99_over_ours",
        3.0,
        "at least",
        "x",
        "that load on Linux, SCHED_IDLE batch: its p99 (median of 10 ms windows) / ours",
    ),
    Goal("colocate.batch_over_linux", 1.4, "at least", "x", "our batch work beside that load / Linux's"),
    Goal(
        "colocate.half_batch_over_core_left",
        0.9,
        "at least",
        "x",
        "kv at half its peak, p99 (median of 10 ms windows) < 75 us: batch work / (1 - kv's attributed core time)",
    ),
    Goal(
        "colocate.linearity",
        0.9,
        "at least",
        "x",
        "default policy, the worst of five loads up to 0.9 of kv's peak: batch work / (1 - load / peak)",
    ),
    Goal(
        "colocate.linearity_of_bound",
        0.9,
        "at least",
        "x",
        "the same / what raw hand-overs leave of it at most, where a request waits for 100 us",
    ),
    Goal(
        "bimodal.p99_gain",
        10.0,
        "at least",
        "x",
        "short requests' p99 (median of 20 ms windows) without preemption / with it",
    ),
    Goal("bimodal.preemption_ns", None, "at most", "ns", "core time that one preemption by probe takes, at 120 % load"),
    Goal("bimodal.signal_preemption_ns", None, "at most", "ns", "the same by signal, in code without probes"),
    Goal(
        "bimodal.throughput_loss",
        None,
        "at most",
        "x",
        "part of a core's capacity that a quantum by probe takes, of what running to completion has",
    ),
    Goal("bimodal.signal_throughput_loss", None, "at most", "x", "the same of a quantum by signal"),
    Goal(
        "batch.goodput",
        1.5,
        "at least",
        "x",
        "requests a second within the limit: libos' batches / the best fixed batch, and / one at a time; the worse",
    ),
    Goal("sim.events_per_s", 5e6, "at least", "1/s", "simulator speed, one core"),
    Goal(
        "lab.formula_error",
        0.01,
        "at most",
        "x",
        "mean times of simulated jobs against formulas, shared servers and priorities too: largest relative error",
        virtual=True,
    ),
    Goal(
        "lab.box_error",
        0.1,
        "at most",
        "x",
        "simulated p50 and p99 of jobs / this machine's on the same recorded load, less 1: largest",
    ),
    Goal(
        "lab.doorbell",
        0.5,
        "at most",
        "x",
        "p50 from need to core of an application that rings / of one that the scan finds, each 5 us",
    ),
    Goal(
        "lab.invariants",
        0,
        "at most",
        "violations",
        "of what policies say that they hold, on random loads",
        virtual=True,
    ),
    Goal(
        "lab.brute_force",
        0.05,
        "at most",
        "x",
        "planners of policies against exact answers on small random cases: largest mean gap",
        virtual=True,
    ),
    Goal(
        "lab.claims",
        0,
        "at most",
        "claims",
        "of published policies, of which nothing is seen in a setting like theirs",
        virtual=True,
    ),
    Goal("lab.speed", 2e6, "at least", "1/s", "jobs that a simulation of 64 cores completes a second, one core"),
    Goal(
        "raft-sim.steps_per_s",
        200e3,
        "at least",
        "1/s",
        "steps of simulated clusters of 5 nodes, all checked, one core: the slower of real nodes and raw core",
    ),
    Goal(
        "raft-sim.seeds",
        10_000,
        "at least",
        "seeds",
        "of 5 real nodes, and of the core alone, run here without a failure",
    ),
    Goal("log.append_over_bare", 1.1, "at most", "x", "durable append, one at a time, p50 / the best raw loop's"),
    Goal("log.group_gain", 20.0, "at least", "x", "durable appends a second, 64 writers of 256 B / one at a time"),
    Goal("log.batching_worst", 0.9, "at least", "x", "adaptive batching / the best fixed setting, worst load"),
    Goal(
        "log.batching_modelled",
        0.9,
        "at least",
        "x",
        "the same on modelled disks, worst of all loads and disks",
        virtual=True,
    ),
    Goal(
        "log.poisson_p50", 0.9, "at least", "x", "Poisson arrivals, p50: the best fixed setting / adaptive, worst load"
    ),
    Goal(
        "log.poisson_p99", None, "at least", "x", "Poisson arrivals, p99: the best fixed setting / adaptive, worst load"
    ),
    Goal("log.recovery_gbps", 1.0, "at least", "GiB/s", "recovery; where the disk reads slower, / the disk's rate"),
    Goal("log.cut_points", 1.0, "at least", "x", "sector-wise cuts of a 1 000-append run that recover / all"),
    Goal(
        "raft-loss.goodput",
        0.9,
        "at least",
        "x",
        "Raft's transport, full window, rack link, up to 10 % loss: frames / those not lost by the link; worst loss",
        virtual=True,
    ),
    Goal(
        "raft-loss.over_go_back_n",
        1.0,
        "at least",
        "x",
        "the same frames / go-back-N's; the worst loss and link",
        virtual=True,
    ),
    Goal(
        "raft-loss.p999_us",
        1000.0,
        "at most",
        "us",
        "1 % loss, rack link, 1 000 requests a second: p99.9 from the intended time to the answer",
        virtual=True,
    ),
    Goal("raft.memory_put_us", 25.0, "at most", "us", "put, 3 replicas in memory on 2 cores, open loop, p50"),
    Goal("raft.durable_over_floor", 1.25, "at most", "x", "durable put p50 / second of three raw writes at once"),
    Goal("raft.libraft_over_ours", 1.3, "at least", "x", "put p50 of libraft on the same disk / ours, durable"),
    Goal(
        "raft.batching_modelled",
        0.9,
        "at least",
        "x",
        "batches, 64 clients / the best fixed setting, virtual time",
        virtual=True,
    ),
    Goal("raft-fail.no_leader_ms", 30.0, "at most", "ms", "kill -9 of a leader to the next one, timeout 10 ms, p99"),
    Goal("raft.over_etcd", 10.0, "at least", "x", "durable puts a second, 64 clients of one socket, ours / etcd's"),
    Goal(
        "raft-resp.over_aof", None, "at least", "x", "replicated SETs, 50 connections / Redis, fsync always, one copy"
    ),
    Goal("raft-resp.over_etcd", None, "at least", "x", "replicated SETs, 50 connections / etcd's puts, 50 clients"),
    Goal(
        "raft-resp.p50_over_disk",
        None,
        "at most",
        "x",
        "p50 of a replicated SET on one connection / three writes of 4 KiB until the second is done",
    ),
    Goal("load.error", 0.02, "at most", "x", "p50, p99, p99.9: said by `corelane load` / known to the server, less 1"),
    Goal("load.rate_error", 0.01, "at most", "x", "achieved rate / asked for, less 1: sockets 200 k/s, memory 1 M/s"),
    Goal("top.cost", 1.02, "at most", "x", "p99 of echo at half load: while corelane top looks on / while nobody does"),
    Goal("ground.udp_before", 0.98, "at least", "x", "figures of echo, kv, afxdp: now / before the ground, the worst"),
    Goal("ground.rearm_ns", 12.0, "at most", "ns", "moving one of 100 000 alarms later, the wheel's work included"),
    Goal(
        "ground.virtual_speed",
        50.0,
        "at least",
        "x",
        "two hosts by a virtual clock, UDP at 10 000/s: virtual / real s",
    ),
    Goal(
        "ground.afxdp_burst", 0.9, "at least", "x", "UDP echo over AF_XDP, 64 under way / a raw loop, one call a burst"
    ),
    Goal("ground.turn_ns", 100.0, "at most", "ns", "a turn of an adopted kthread that has nothing to do"),
    Goal("ground.turn_echo", 1.02, "at most", "x", "UDP echo, p50: by an adopted kthread / by an ordinary one"),
    Goal("ground.wake_over_own", 1.1, "at most", "x", "request to one that sleeps, p50: adopted / ordinary kthread"),
    Goal("ground.idle", 0.005, "at most", "cores", "an adopted kthread in a selectors loop without work"),
    Goal(
        "tcp.linux_spin_over_ours",
        1.8,
        "at least",
        "x",
        "64 B request, p50 over a veth, AF_XDP client: spinning Linux epoll server / ours",
    ),
    Goal(
        "tcp.rps_over_linux", 2.5, "at least", "x", "the same, 100 connections, answers a second: ours / that server's"
    ),
    Goal(
        "tcp.over_udp",
        0.5,
        "at least",
        "x",
        "echo through one core, memory: 1 000 TCP connections, one under way / UDP",
    ),
    Goal("tcp.bulk_gbps", 25.0, "at least", "Gb/s", "one connection to us, copied to the user, memory, MTU 1500"),
    Goal("tcp.bulk_over_veth", 1.0, "at least", "x", "the same / Linux to Linux on a veth pair"),
    Goal(
        "tcp.connections_per_s",
        700e3,
        "at least",
        "1/s",
        "set up, one request, closed; one core, memory, event form",
    ),
    Goal("tcp.blocking_connections_per_s", 350e3, "at least", "1/s", "the same, a blocking uthread a connection"),
    Goal("tcp.idle_bytes", 512.0, "at most", "B", "memory of an idle connection, event form, of 100 000"),
    Goal("tcp.idle_round_ns", 5.0, "at most", "ns", "what 100 000 idle connections add to a round of the loop"),
    Goal(
        "tcp.loss_goodput",
        0.95,
        "at least",
        "x",
        "bulk, 1 % loss and 10 ms, CUBIC: ours / Linux to Linux through the same wire",
    ),
    Goal(
        "tcp.tiny_rtt",
        0.6,
        "at least",
        "x",
        "bulk, 1 % loss / none, round trips of 5 to 50 us, virtual time; the worst",
    ),
    Goal("tcp.fairness", 0.9, "at least", "x", "Jain's index of ten flows of ours and ten of Linux' on one link"),
    Goal(
        "tcp.attack_p99", 3.0, "at most", "x", "a client's p99 while the server is attacked / alone, the worst attack"
    ),
    Goal(
        "tcp.lwip_over_ours",
        3.0,
        "at least",
        "x",
        "core time a request, 100 connections, memory: lwIP / ours, event form",
    ),
    Goal("tcp.lwip_over_ours_1000", 10.0, "at least", "x", "the same at 1 000 connections"),
    Goal("trace.throughput_cost", 0.08, "at most", "x", "echo: part of the throughput lost, all requests written down"),
    Goal("trace.kv_throughput_cost", 0.04, "at most", "x", "the same of the key-value store over UDP"),
    Goal("trace.tcp_throughput_cost", 0.04, "at most", "x", "the same of the key-value store over TCP"),
    Goal("trace.p99_cost", 0.05, "at most", "x", "echo: part that is added to p99 at half load"),
    Goal("trace.kv_p99_cost", 0.05, "at most", "x", "the same of the key-value store over UDP"),
    Goal("trace.tcp_p99_cost", 0.05, "at most", "x", "the same of the key-value store over TCP"),
    Goal("trace.blame_right", 0.95, "at least", "x", "a delay at one stage: trials in which it is named", virtual=True),
    Goal("trace.causes_right", 1.0, "at least", "x", "causes of examples/slow.py, on drawn loads: part that is named"),
    Goal("trace.sampled_cost", 0.01, "at most", "x", "echo: throughput that the default, sampled, costs"),
    Goal("trace.sum_error", 100.0, "at most", "ns", "stages of a request against its latency from outside: p99 of it"),
    Goal("trace.gap_found", 0.95, "at least", "x", "gaps above 20 us during requests that are named as such"),
)
