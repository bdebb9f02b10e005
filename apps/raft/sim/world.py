"""Simulated clusters from seeds (world.h), from Python.

    result = run(seed=7, nodes=5)
    assert not result.failed, result.reason

The same seed, nodes, steps and version of the simulation are the same run, to the bit.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....runtime.errors import CorelaneError, check
from ..._native import ffi, lib

MODES = {
    "core": lib.CL_RAFT_SIM_CORE,
    "node": lib.CL_RAFT_SIM_NODE,
    "kv": lib.CL_RAFT_SIM_KV,
    "resp": lib.CL_RAFT_SIM_RESP,
}
# Mistakes on purpose, for showing that seeds find them (run.h).
MUTANTS = {
    "vote-not-kept": lib.CL_RAFT_SIM_VOTE_NOT_KEPT,
    "early-durable": lib.CL_RAFT_SIM_EARLY_DURABLE,
    "stale-durable": lib.CL_RAFT_SIM_STALE_DURABLE,
    "early-answer": lib.CL_RAFT_SIM_EARLY_ANSWER,
    "unasked-read": lib.CL_RAFT_SIM_UNASKED_READ,
    "no-sessions": lib.CL_RAFT_SIM_NO_SESSIONS,
    "ignored-error": lib.CL_RAFT_SIM_IGNORED_ERROR,
    "lost-sessions": lib.CL_RAFT_SIM_LOST_SESSIONS,
    "early-read": lib.CL_RAFT_SIM_EARLY_READ,
    "rot-cut": lib.CL_RAFT_SIM_ROT_CUT,
    "rot-adopted": lib.CL_RAFT_SIM_ROT_ADOPTED,
}
MOST_NODES = int(lib.CL_RAFT_SIM_MOST_NODES)
CHUNK = 100  # seeds between two words of progress


@dataclass
class Result:
    """What runs came to: sums over them (run.h), and the first failure."""

    counts: dict[str, int]
    failed_seed: int | None = None
    reason: str = ""
    trace: str = ""

    @property
    def failed(self) -> bool:
        """Whether anything did not hold."""
        return self.failed_seed is not None

    def __getattr__(self, name: str) -> int:
        try:
            return self.counts[name]
        except KeyError:
            raise AttributeError(name) from None


def _result(raw: Any, trace: str = "") -> Result:
    fields = [n for n, _ in ffi.typeof(raw).item.fields if n not in ("reason", "failed_seed")]
    counts = {name: int(getattr(raw, name)) for name in fields}
    failed = int(raw.failed_seed) if raw.failures else None
    return Result(counts, failed, ffi.string(raw.reason).decode() if raw.failures else "", trace)


def _options(seed: int, nodes: int, steps: int, mode: str, mutant: str | None, trace: bool, outcomes_only: bool) -> Any:
    if mode not in MODES:
        raise CorelaneError(f"simulate in mode {mode!r}", "there is none", f"choose one of {', '.join(MODES)}")
    if not 1 <= nodes <= MOST_NODES:
        raise CorelaneError(f"simulate {nodes} nodes", f"a world has 1 to {MOST_NODES}", "give --nodes 3, 5 or 7")
    return ffi.new(
        "struct cl_raft_sim_options *",
        {
            "seed": seed,
            "nodes": nodes,
            "steps": steps,
            "mode": MODES[mode],
            "mutant": MUTANTS[mutant] if mutant else 0,
            "trace": int(trace),
            "outcomes_only": int(outcomes_only),
        },
    )


class World:
    """Memory for one world at a time, used again from seed to seed. For one thread."""

    def __init__(self) -> None:
        self._sim = ffi.gc(lib.cl_raft_sim_new(), lib.cl_raft_sim_delete)
        if not self._sim:
            raise CorelaneError("make a simulated world", "there is no memory")

    def run(self, options: Any, count: int, raw: Any) -> int:
        """Add the runs of `count` seeds to `raw`; stops after the first that fails. 1 if one did."""
        return check(int(lib.cl_raft_sim_many(self._sim, options, count, raw)), "run a simulated world")

    def trace(self) -> str:
        """The readable trace of the last run that kept one."""
        text: bytes = ffi.string(lib.cl_raft_sim_trace(self._sim))
        return text.decode()


def run(
    seed: int,
    nodes: int = 5,
    *,
    steps: int = 0,
    mode: str = "core",
    mutant: str | None = None,
    trace: bool = False,
    outcomes_only: bool = False,
) -> Result:
    """Run one seed. trace: keep a readable one.

    steps: events with faults and load, 0 for the default of 2500, or 5000 of real nodes.
    """
    world, raw = World(), ffi.new("struct cl_raft_sim_result *")
    world.run(_options(seed, nodes, steps, mode, mutant, trace, outcomes_only), 1, raw)
    return _result(raw, world.trace() if trace else "")


def run_many(
    first: int,
    count: int,
    nodes: int = 5,
    *,
    steps: int = 0,
    mode: str = "core",
    mutant: str | None = None,
    outcomes_only: bool = False,
    threads: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Run the seeds first..first+count-1 and stop at the first that fails; its readable trace is in the result.

    threads: worlds at a time, each on a core of its own. progress: called with the number of seeds done, by one thread
    at a time. With several threads the seed reported is the lowest of those that failed.
    """
    chunks = itertools.count(0, CHUNK)
    lock = threading.Lock()
    raws: list[Any] = []
    errors: list[Exception] = []
    stop = threading.Event()

    def work() -> None:
        world, raw = World(), ffi.new("struct cl_raft_sim_result *")
        raws.append(raw)
        while not stop.is_set():
            with lock:
                at = next(chunks)
            if at >= count:
                return
            options = _options(first + at, nodes, steps, mode, mutant, False, outcomes_only)
            if world.run(options, min(CHUNK, count - at), raw):
                stop.set()
            with lock:
                if progress:
                    progress(sum(int(r.runs) for r in raws))

    def guarded() -> None:
        try:
            work()
        except Exception as error:  # raised again below, in the caller's thread
            errors.append(error)
            stop.set()

    _options(first, nodes, steps, mode, mutant, False, outcomes_only)  # complains here, before threads begin
    workers = [threading.Thread(target=guarded) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    return _merge([_result(raw) for raw in raws], nodes, steps, mode, mutant, outcomes_only)


def _merge(parts: list[Result], nodes: int, steps: int, mode: str, mutant: str | None, outcomes_only: bool) -> Result:
    """One result of those of several threads; a failing seed is run again for its trace."""
    counts = {name: sum(part.counts[name] for part in parts) for name in parts[0].counts}
    counts["hash"] = 0
    for part in parts:
        counts["hash"] ^= part.counts["hash"]
    bad = sorted((p for p in parts if p.failed), key=lambda p: p.failed_seed or 0)
    if not bad:
        return Result(counts)
    seed = bad[0].failed_seed
    assert seed is not None
    again = run(seed, nodes, steps=steps, mode=mode, mutant=mutant, trace=True, outcomes_only=outcomes_only)
    return Result(counts, seed, bad[0].reason, again.trace)
