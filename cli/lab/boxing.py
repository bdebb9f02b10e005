"""corelane lab box: one load under one policy, simulated and on this machine's cores."""

from __future__ import annotations

import argparse
import json

from ...runtime.errors import CorelaneError
from ..usage import WrongUsage, words_are_wrong


def run(options: argparse.Namespace) -> int:
    """Both sides, round by round, and the medians of their ratios."""
    from ...bench.harness.machine import allowed_cpus
    from ...bench.lab import box, policy, runs
    from .running import wanted

    cores = tuple(options.cores or allowed_cpus()[:2])
    if lost := set(cores) - set(allowed_cpus()):
        raise WrongUsage(f"--cores {','.join(map(str, cores))}", f"{lost.pop()} may not be used by this process")
    with words_are_wrong():
        load, chosen = wanted(options.load), policy.load(options.policy, options.set)
    if chosen.oracle:
        raise CorelaneError(f"run {options.policy} on the box", "it is an oracle", "nobody knows the future there")
    given = (options.policy, options.set, load, cores, range(options.seed, options.seed + options.rounds))
    row = runs.in_a_child(options.policy, box.rounds, *given) if chosen.own else box.rounds(*given)
    if options.json:
        print(json.dumps(row))
        return 0
    print(f"{chosen} on cores {', '.join(map(str, cores))}: {row['n']} jobs in {row['rounds']} rounds")
    for p in box.PERCENTILES:
        box_us, model_us = row[f"box_p{p}_us"], row[f"model_p{p}_us"]
        error, least, most = (100 * row[f"p{p}_{key}"] for key in ("error", "from", "to"))
        off = f"{error:+.1f} % ({least:+.1f} to {most:+.1f} % in rounds)"
        print(f"  p{p}: box {box_us:.1f} us, simulated {model_us:.1f} us: {off}")
    for said, key in (("simulated without losses", "plain_p{}_error"), ("simulations of a round apart", "p{}_apart")):
        print(f"  {said}: {', '.join(f'p{p} {100 * row[key.format(p)]:+.1f} %' for p in box.PERCENTILES)}")
    gone = f"the cores lost {100 * row['stopped']:.2g} % of their time"
    print(f"  a job costs {row['switch_ns']} to {row['switch_ns'] + row['late_ns']} ns besides its work; {gone}")
    return 0
