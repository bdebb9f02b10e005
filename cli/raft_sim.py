"""corelane raft-sim: simulated Raft clusters from seeds, until one fails or all have passed."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable

from . import values

IMPORTS = ("..apps._native",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=values.positive, metavar="N", help="how many (default 1000, or 1 with --seed)")
    parser.add_argument("--seed", type=values.whole, metavar="S", help="the first seed (default 1); alone: this one")
    parser.add_argument("--nodes", type=values.raft_nodes, default=5, metavar="N", help="of a cluster (default 5)")
    parser.add_argument(
        "--mode",
        choices=("core", "node", "kv", "resp"),
        default="core",
        help="core: the core alone, its storage a model; node: the real node and log on block devices that fail; "
        "kv: the same with the key-value store on it; resp: the same with typed values and clients that speak RESP",
    )
    parser.add_argument(
        "--steps",
        type=values.positive_u32,
        metavar="N",
        help="with faults and load, of each seed (default 2500, or 5000 where the nodes are real)",
    )
    text = "seeds at a time (default: one a core)"
    parser.add_argument("--threads", type=values.between(1, 1024), metavar="N", help=text)
    parser.add_argument("--trace", action="store_true", help="with --seed: print the readable trace")
    parser.add_argument("--json", action="store_true", help="print the sums as JSON")


def run(options: argparse.Namespace) -> int:
    """Run the seeds; 1 if one failed, its reason and the end of its trace printed."""
    from ..apps.raft.sim import world

    first = 1 if options.seed is None else options.seed
    if options.trace:
        result = world.run(first, options.nodes, steps=options.steps or 0, mode=options.mode, trace=True)
        print(result.trace, end="", file=sys.stderr if options.json else sys.stdout)
        count = 1
    else:
        count = options.seeds or (1000 if options.seed is None else 1)
        result = world.run_many(
            first,
            count,
            options.nodes,
            steps=options.steps or 0,
            mode=options.mode,
            threads=options.threads or len(os.sched_getaffinity(0)),
            progress=_progress(count),
        )
    again = f"corelane raft-sim --nodes {options.nodes} --mode {options.mode} --seed {result.failed_seed} --trace"
    if options.steps:
        again += f" --steps {options.steps}"
    if options.json:
        print(json.dumps({**result.counts, "failed_seed": result.failed_seed, "reason": result.reason}))
    elif result.failed:
        if not options.trace:
            print("\n".join(result.trace.splitlines()[-60:]))
        print(f"{result.reason}\nagain, with the whole trace: {again}")
    else:
        print(
            f"{result.runs} seeds of {options.nodes} nodes passed: {result.steps} steps, "
            f"{result.virtual_ns / 1e9:.0f} s of virtual time, {result.elections} elections, "
            f"{result.entries_committed} entries, {result.ops_under_faults} operations answered under faults (none in "
            f"{result.unanswered_runs} seeds), {result.crashes} crashes, "
            f"{result.member_changes} changes of membership"
        )
    return int(result.failed)


def _progress(count: int) -> Callable[[int], None]:
    """A line on the terminal, at most twice a second."""
    last = [time.monotonic()]

    def show(done: int) -> None:
        now = time.monotonic()
        if now - last[0] > 0.5 and sys.stderr.isatty():
            last[0] = now
            print(f"\r{done} of {count} seeds", end="" if done < count else "\n", file=sys.stderr, flush=True)

    return show
