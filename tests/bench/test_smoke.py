"""Every benchmark runs in a fraction of its time and leaves a whole document and a plot. No speed is asserted."""

from __future__ import annotations

import functools
import importlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from corelane.bench import raft_fail, registry
from corelane.bench.asyncio import echo, loops, start, web
from corelane.bench.batch import rules as batch_rules
from corelane.bench.bimodal import bimodal
from corelane.bench.colocate import colocate, sweep
from corelane.bench.embed import embed
from corelane.bench.handoff import handoff
from corelane.bench.harness import document as doc
from corelane.bench.http import http
from corelane.bench.posix import posix
from corelane.bench.raft import arms
from corelane.bench.sim import managed_check, quantum
from corelane.cli.main import main

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'corelane[plot]'")

ENTRIES = registry.entries()
STEPS = (
    "ask",
    "ask, numba job",
    "ask, seldom",
    "interrupt",
    "evict",
    "owner parked",
    "idle core, iokernel",
    "owner stopped",
    "owner killed",
)
LINUX = "Linux, batch under SCHED_IDLE"
ARMS = {  # that each benchmark compares: each is in the document, or said to be left out
    "afxdp": ("reflector", "embedded", "iokernel", "linux spin", "linux block"),
    "asyncio": (
        *(echo.arm_name(loop, form) for loop in loops.ALL for form in echo.FORMS),
        *(web.arm_name(loop) for loop in loops.ALL),
        *(echo.ON_MEMORY, echo.STREAMS_ON_MEMORY, echo.NUMBA_ON_MEMORY, echo.REFLECTOR_ON_MEMORY),
        *(*echo.FLOORS, echo.ENTRY, web.ALONE, start.BEHIND, start.AT_ONCE),
    ),
    "batch": (batch_rules.POLICY, batch_rules.NO_DROP, batch_rules.WAITS_TOO),
    "bimodal": tuple(bimodal.ARMS),
    "colocate": (
        "kv alone",
        "batch alone",
        *(f"delay target {us:g} us" for us in colocate.TARGETS_US),
        *colocate.LINUX,
        *(f"{name}{colocate.SWEPT}" for name in (*sweep.SWEPT_TARGETS.values(), *sweep.SWEPT_RAW.values())),
        *(f"{name}{colocate.SWEPT}" for name in (sweep.DEDICATED, sweep.DEFAULT, sweep.BOUNDED, sweep.COMPARED)),
    ),
    "embed": (embed.REPLACE, embed.RESTART),
    "http": tuple(f"{server}: {case.name}" for server in http.SERVERS for case in http.CASES),
    "kv_tcp": ("ours", "memcached", "redis-server"),
    "posix": (*(f"{name}{on}" for name in posix.GAINS for on in (" on Linux", ", ours")), posix.MEMORY),
    "handoff": (*STEPS, *handoff.WAYS, *handoff.DECISIONS),
    "loadshift": ("delay", "shenango", "static", LINUX),
    "sim": tuple(managed_check.ARMS),
}
BUSY = (
    "did not run together within the time given",
    "the load generator was not done after",
    "another socket holds this queue",  # the kernel's worker that lets go of a closed one has not run for seconds
)
TRIES = 6

# Of those that take longest: make soak runs them whole. tests/bench has the figures and baselines of the first two.
PART = {"probes": ("--kernels", "fnv,spmv"), "raft": ("--no-baseline",), "sim": ()}
LONG = {  # those that take seconds even so: make soak has them. Parts of each have tests of their own beside
    "asyncio",
    "batch",
    "bimodal",
    "canary",  # cli/test_main.py has all of it
    "colocate",
    "embed",
    "handlers",
    "handoff",
    "hostile",
    "http",
    "isolation",
    "kv",
    "kv_tcp",
    "lab",
    "loadshift",
    "log",
    "posix",
    "probes",
    "published",
    "raft",
    "raft_fail",
    "raft_resp",
    "resp_durable",
    "sim",
    "stealing",
    "tcp",
}
WHOLE_TAKES_S = {"probes": 50, "raft": 80, "sim": 100}
RAFT = (
    f"{arms.MEMORY}, open loop",
    f"{arms.SWITCHED}, open loop",
    *(arms.arm_name(system, 1) for system in (arms.MEMORY, arms.SWITCHED, arms.MOVED)),
    *(arms.arm_name(system, arms.CLIENTS[-1]) for system in (arms.TMPFS, arms.DISK, arms.SHORT)),
)
SMALL_LOGS = {"log": 32 << 20, "memory": 4 << 20, "relay": 4 << 20}  # of Raft nodes
# What they have fewer of, but arms of ARMS: by its name in corelane.bench its value, or what makes that of the whole.
FEWER: dict[str, dict[str, Any]] = {
    "afxdp": {"afxdp.afxdp.ROUNDS": 2},
    "asyncio": {
        "asyncio.echo.ROUNDS": 1,
        "asyncio.web.ROUNDS": 1,
        "asyncio.start.ROUNDS": 1,
        "asyncio.echo.IDLE_LEAST_S": 0.05,
    },
    "bimodal": {
        "bimodal.bimodal.ROUNDS": 2,
        "bimodal.bimodal.ROUNDS_OF_OTHERS": 1,
        "bimodal.bimodal.LOADS": (0.1, 0.8),
    },
    "batch": {
        "batch.batch.ROUNDS": 1,
        "batch.batch.LOADS": (1.0, 2.5),
        "batch.batch.SWEPT": (2.5,),
        "batch.batch.LEAST_S": 0.02,
        "batch.batch.ROUND_LEAST_S": 0.02,
        "batch.batch.PROFILE_LOOKS": 1,
        "batch.batch.PROFILED": (1, 2, 8),
        "batch.rules.SIZES": (1, 8),
        "batch.rules.ROOMS": (1,),
        "batch.rules.ROOMS_ALONE": (1,),
    },
    "colocate": {
        "colocate.colocate.MOST_ROUNDS": 1,
        "colocate.sweep.LOADS": (0.1, 0.9),
        "colocate.wall.BEYOND": (3.0,),
        # The jobs on Linux in C: three compilations less. tests/bench/tenant has such a job of numba.
        "colocate.arms.Tenant": lambda whole: lambda *args, **how: whole(*args, **how | {"code": "c"}),
    },
    "demo": {"demo.FRACTIONS": (0.1, 0.8, 1.15), "demo.FEW_KEYS": 1000},
    "echo": {
        "echo.echo.PIECES": 1,
        "echo.echo.ROUNDS": 2,
        "echo.echo.MODES": ("block",),
        "harness.peaks.ROUNDS": 1,
    },
    "embed": {"embed.embed.ROUNDS": 1},
    "ground": {
        "ground.rearm.ROUNDS": 2,
        "ground.burst.ROUNDS": 2,
        "ground.turn.ROUNDS": 2,
        "ground.virtual.ROUNDS": 2,
    },
    "handlers": {
        "handlers.ROUNDS": 2,
        "handlers.SHORT_ROUNDS": 3,
        "handlers.search_peak": lambda whole: partial(whole, tries=5),
    },
    "handoff": {
        "handoff.handoff.ROUNDS": 2,
        "handoff.handoff.TURNS_LEAST": 1,
        "handoff.handoff.KILLS_LEAST": 1,
        "handoff.handoff.DECISION_APPS": 4,
        # One measurement for all three rows: tests/bench/handoff times decisions over few and many.
        "handoff.handoff.DECISIONS": dict.fromkeys(handoff.DECISIONS, 3),
        "decision.measure": functools.cache,
    },
    "hostile": {
        "hostile.hostile.ATTACKS": lambda whole: {
            name: whole[name] for name in ("connect and close", "doorbell bits", "spoofed flood")
        },
        "hostile.hostile.REST_S": 0.1,
    },
    "http": {"http.http.ROUNDS": 1, "http.http.WARM_S": 0.02},
    "isolation": {
        "isolation.isolation.SLICE_S": 0.02,
        "isolation.isolation.CALIBRATES": 1,
        "isolation.share.ROUNDS": 1,
    },
    "kv_tcp": {
        "kv_tcp.kv_tcp.ROUNDS": 1,
        "kv_tcp.kv_tcp.PIPELINES": (1,),
        "kv_tcp.kv_tcp.KEYS": 1000,
        "kv_tcp.kv_tcp.CONNECTIONS": 20,
        "kv_tcp.kv_tcp.FRACTIONS": (0.1, 1.1),
        "kv_tcp.kinds.CONNECTIONS": 20,
        "kv_tcp.kinds.MANY": 40,
        "kv_tcp.kinds.SIZES": (1024,),
        "kv_tcp.kv_tcp.ITEM_MIB": 8,
        "kv_tcp.kv_tcp.ITEM_KEYS": 20_000,
        "kv_tcp.scripts.LINES": 1000,
        "harness.peaks.ROUNDS": 1,
    },
    "kv": {
        "harness.peaks.ROUNDS": 1,
        "kv.kv.FRACTIONS": (0.1, 0.8, 1.1),
        "kv.kv.FEW_KEYS": 1000,
        "kv.kv.SIZES": (8, 1300),
        "kv.kv.SWEEP_KEYS": 100,
        "kv.kv.MEMORY_BYTES": 32 << 20,
        "kv.kv.BATCH_ROUNDS": 1,
    },
    "lab": {
        "lab.studies.FIRST_RUNS": 1,
        "lab.studies.SPEED_JOBS": 20_000,
        "lab.boxed.ROUNDS": 1,
        "lab.boxed.CASES": lambda whole: whole[2:4],
        "lab.boxed.RECORDED": lambda whole: whole[:1],
        "lab.doorbell.ROUNDS": 1,
        "lab.doorbell.LEAST": 1,
    },
    "log": {
        "log.log.ROUNDS": 4,
        "log.log.SWEEP_ROUNDS": 4,
        "log.log.LOADS": (1, 8, 64),
        "log.log.CORE_ROUNDS": 2,
        "log.arrivals.FRACTIONS": (0.2, 1.2),
        "log.arrivals.RULES": lambda whole: {name: whole[name] for name in ("adaptive", "no wait, 1 in flight")},
    },
    "load": {
        "load.load.ROUNDS": 1,
        "load.load.ERROR_RATES": {"UDP": (1000, 5000), "TCP": (1000,)},
        "load.load.CONNECTIONS": {"UDP": 4, "TCP": 50},
        "load.load.SOCKET_RATE": 5000,
        "load.load.AF_XDP_RATES": (20_000,),
        "load.load.MEMORY_RATE": 20_000,
    },
    "loadshift": {"loadshift.ROUNDS_LEAST": 1},
    "posix": {"posix.posix.ROUNDS": 1, "posix.posix.KEYS": 200, "posix.posix.IDLE_LEAST_S": 0.05},
    "raft": {  # tests/bench/raft has lone puts; other arms have another number of clients
        "raft.nodes.BYTES": SMALL_LOGS,
        "raft.batches.FIXED": lambda whole: whole[::4],
        "raft.raft.SNAPSHOTS": {},
        "raft.raft.lone_puts": lambda _: lambda *_: None,
        "raft.raft.ours": lambda whole: lambda *args: [arm for arm in whole(*args) if arm[0] in RAFT],
    },
    "raft_fail": {
        "raft_fail.LEAST_KILLS": 1,
        "raft.nodes.BYTES": SMALL_LOGS,
        "raft_fail.folders": lambda whole: (
            lambda *args: [(name, folder) for name, folder in whole(*args) if name in (raft_fail.TMPFS, raft_fail.DISK)]
        ),
    },
    "raft_resp": {
        "raft.nodes.BYTES": SMALL_LOGS,
        "raft.lone.FLOOR_FILE_BYTES": 6 << 20,
        "raft_resp.raft_resp.ROUNDS": 1,
        "raft_resp.client.KEYS": 1000,
        "raft_resp.client.FIRST_SETS": 50,
    },
    "raft_sim": {"raft_sim.ROUNDS": 2, "raft_sim.BATCH": 2},
    "raft_loss": {
        "raft_loss.raft_loss.LOSSES": (0.0, 0.01, 0.1),
        "raft_loss.raft_loss.SEEDS": (1,),
    },
    "ring": {"ring.ring.ROUNDS": 2},
    "stealing": {"stealing.SETS_BYTES": (0, 65536), "stealing.ROUNDS": 1, "stealing.CURVE": (0.5, 3.0)},
    "sim": {
        "sim.managed_check.ROUNDS_LEAST": 1,
        "sim.managed_check.LOADS": (0.1, 0.8),
        "sim.studies.SERVERS": (1, 4),
        "sim.studies.CORES": (4, 16),
        "sim.studies.LOADS": (0.5, 1.05),
        "sim.studies.ONE_LOOP_CORES": (4, 8),
        "sim.interval.INTERVALS_US": (5, 1000),
        "sim.quantum.WORKLOADS": lambda whole: {quantum.BIMODAL: whole[quantum.BIMODAL]},
        "sim.quantum.CURVES": ((quantum.BIMODAL, 16),),
        "sim.quantum.WHAT_IF": (quantum.BIMODAL,),
        "sim.quantum.QUANTA_US": (0, 5),
        "sim.quantum.COSTS_US": (0, 14),
        "sim.quantum.CURVES_LOADS": (0.5, 1.05),
        "sim.quantum.CORES": (16, 64),
        "sim.quantum.LOADS": lambda whole: whole[9::10],
    },
    "tcp": {
        "harness.peaks.ROUNDS": 1,
        "tcp.requests.NUMBERS": (1, 100),
        "tcp.requests.FRACTIONS": (0.5,),
        "tcp.veth.ROUNDS": 1,
        "tcp.veth.SERVERS": ("ours", "linux spin"),
        "tcp.veth.KINDS": lambda whole: {"unloaded": whole["unloaded"]},
        "tcp.bulk.ROUNDS": 1,
        "tcp.idle.ROUNDS": 1,
        "tcp.attack.ATTACKS": lambda whole: {name: whole[name] for name in ("SYN flood", "zero windows")},
        "tcp.attack.ATTACKERS": {},
        "tcp.lwip.ROUNDS": 1,
        "tcp.wire.ROUNDS": 1,
        "tcp.wire.FLOWS": 2,
        "tcp.wire.LEAST_S": 0.1,
        "tcp.wire.SHARE_ROUNDS": 1,
        "tcp.wire.SHARE_LEAST_S": 0.1,
        "tcp.wire.TINY_US": (20.0,),
        "tcp.wire.TINY_S": 0.01,
        "tcp.idle.ROUNDS_OF_BYTES": 1,
        "tcp.idle.SOME": 100,
        "tcp.idle.BLOCKING_SOME": 10,
        "tcp.idle.BLOCKING_MANY": 100,
        "tcp.idle.MANY": 2000,
    },
    "threads": {"threads.threads.ROUNDS": 2},
    "trace": {
        "trace.turns.MOST_WINDOWS": 57,
        "trace.trace.FEW_KEYS": 1000,
        "trace.right.TRIALS": 14,
        "trace.sums.SLICES": 1,
        "trace.gaps.SLICES": 1,
        "trace.causes.WORDS": ("long",),
        "trace.causes.SECONDS": 0.5,
        "trace.causes.TRIES": 1,
    },
}


def run(command: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit status, output and errors of `corelane bench`, in this process: the imports of one alone take a second.

    Again, where the benchmark says that the machine kept it from running.
    """
    for turn in range(1, TRIES + 1):
        code = main(command)
        out, err = capfd.readouterr()
        if turn == TRIES or not code or not any(why in err for why in BUSY):
            break
        print(f"run {turn} is not judged: {err.strip().splitlines()[-1]}")
    return code, out, err


def fewer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have less to do of a benchmark."""
    for place, value in FEWER.get(name, {}).items():
        module, _, constant = f"corelane.bench.{place}".rpartition(".")
        loaded = importlib.import_module(module)
        monkeypatch.setattr(loaded, constant, value(getattr(loaded, constant)) if callable(value) else value)


@pytest.mark.timeout(3 * 300)
@pytest.mark.parametrize(
    ("name", "options", "whole"),
    [
        *(
            pytest.param(
                name, PART.get(name, ()), False, id=name, marks=[pytest.mark.soak(takes_s=15)] if name in LONG else ()
            )
            for name in sorted(ENTRIES)
        ),
        *(
            pytest.param(name, (), True, id=f"{name} whole", marks=pytest.mark.soak(takes_s=takes_s))
            for name, takes_s in WHOLE_TAKES_S.items()
        ),
    ],
)
def test_benchmark_leaves_a_whole_document(
    name: str,
    options: tuple[str, ...],
    whole: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    if name == "sim":
        request.getfixturevalue("simulator")
    if not whole:
        fewer(name, monkeypatch)
    path, png = tmp_path / "x.json", tmp_path / "x.png"
    seconds = "0.2" if whole else "0.1"
    command = ["bench", name, "--seconds", seconds, *options, "--json", str(path), "--plot", str(png)]
    code, out, err = run(command, capfd)
    assert code == 0, err
    assert "Traceback" not in err
    document = doc.read(path)
    assert document["bench"] == name
    if "--kernels" not in options:
        assert set(document["figures"]) >= set(ENTRIES[name].figures)
    assert document["arms"] or document["settings"]["skipped"]
    there = {arm["name"] for arm in document["arms"]} | set(document["settings"]["skipped"])
    assert set(ARMS.get(name, ())) <= there
    assert document["canary"]["seconds"] > 0
    if document["arms"]:
        assert png.read_bytes().startswith(b"\x89PNG")
    else:
        assert "no plot written" in out
        assert not png.exists()
