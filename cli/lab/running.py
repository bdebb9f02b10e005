"""corelane lab list, run, compare: policies on simulated cores, beside published ones and baselines."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import values
from ..outputs import check_writable
from ..usage import WrongUsage, words_are_wrong

if TYPE_CHECKING:
    from ...bench.harness.session import Session
    from ...bench.lab.runs import Done, Task, Wanted
    from ...bench.lab.world import Machine

EXAMPLE = "cluster:jobs=2000,load=0.8"
BASELINES = ("fifo", "round_robin", "srpt", "edf", "fair", "static")  # `compare` has them beside every policy


def numbers(text: str) -> dict[str, float]:
    """Settings by name: "jobs=2000,load=0.8"."""
    out = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        try:
            out[name] = float(value)
        except ValueError:
            equals = ""
        if not equals or not name.isidentifier() or not math.isfinite(out[name]):
            raise argparse.ArgumentTypeError(f"{part!r} is no setting: write it as name=number")
    return out


def cores(text: str) -> tuple[int, ...]:
    """Numbers of cores: "64", "4,16,64", or "4..256" for powers of two between."""
    found = re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", text)
    try:
        if found:
            low, high = int(found[1]), int(found[2])
            counts = tuple(low << i for i in range(16) if low and low << i <= high)
        else:
            counts = tuple(int(word) for word in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1 or max(counts) > 4096:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of cores: write 64, or 4,16,64, or 4..256")
    return counts


def add_run(parser: argparse.ArgumentParser) -> None:
    """What `run` and `compare` take."""
    parser.add_argument("--policy", required=True, metavar="A,B,...", help="names, module:function of your own; or all")
    parser.add_argument("--set", type=numbers, action="append", default=[], metavar="K=V", help="of all these policies")
    parser.add_argument("--load", default="cluster", metavar="LOAD", help=f"a file, or a generator: {EXAMPLE}")
    parser.add_argument("--cores", type=cores, default=(64,), metavar="N,M", help="simulated: 4..256 (default 64)")
    parser.add_argument("--seeds", type=values.positive, default=5, metavar="N", help="runs of each (default 5)")
    parser.add_argument("--seed", type=values.whole, default=1, metavar="N", help="the first one (default 1)")
    machine = parser.add_argument_group("the simulated machine")
    machine.add_argument("--speeds", metavar="A,B", help="of cores, in turns (default: those of the generator, or 1)")
    machine.add_argument("--pairs", action="store_true", help="two and two cores are hyper-threads of one")
    machine.add_argument("--loops", type=values.positive, default=1, metavar="N", help="of the iokernel (default 1)")
    machine.add_argument("--seats", type=values.positive, default=1, metavar="N", help="jobs that may share a core")
    machine.add_argument("--resources", action="store_true", help="receive, transmit, memory and budget are bounded")
    machine.add_argument("--costs", type=numbers, default={}, metavar="K=V", help="switch_ns, move_ns, loop_ns, etc.")
    text = "between ticks (default: none)"
    machine.add_argument("--interval-us", type=values.microseconds, default=0.0, metavar="US", help=text)
    machine.add_argument("--room", type=values.positive, default=4096, metavar="N", help="jobs there at a time (4096)")
    out = parser.add_argument_group("output")
    out.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write JSON to FILE, or to stdout")
    out.add_argument("--plot", metavar="FILE.png", help="write a plot (needs matplotlib)")
    out.add_argument("--report", metavar="DIR", help="write one page, DIR/index.html (needs matplotlib)")
    out.add_argument("--processes", type=values.positive, metavar="N", help="beside each other (default: the cores)")
    out.add_argument("--ray", action="store_true", help="on a Ray cluster instead (needs ray)")


def show_list(as_json: bool) -> int:
    """Policies and generators, with their settings."""
    from ...bench.lab import generators, policy

    found = [policy.known(name) for name in policy.names()]
    made = generators.GENERATORS
    if as_json:
        policies = [
            {"name": p.name, "settings": dict(p.settings), "oracle": p.oracle, "source": p.source} for p in found
        ]
        loads = [{"name": n, "settings": {k: s.default for k, s in known.items()}} for n, (_, known) in made.items()]
        print(json.dumps({"policies": policies, "generators": loads}, indent=1))
        return 0
    print("policies")
    for p in found:
        print(f"  {p}{', an oracle' if p.oracle else ''}: {p.source}")
    print("generators")
    for name, (function, known) in made.items():
        print(f"  {name}: {(function.__doc__ or '').splitlines()[0]}")
        for key, setting in known.items():
            print(f"    {key}={setting.default:g}  {setting.about}")
    return 0


def wanted(text: str) -> Wanted:
    """What --load names."""
    from ...bench.lab.generators import GENERATORS
    from ...bench.lab.runs import Wanted

    name, _, settings = text.partition(":")
    if name in GENERATORS:
        try:
            return Wanted(name, numbers(settings))
        except argparse.ArgumentTypeError as error:
            raise WrongUsage(f"--load {text}", str(error)) from error
    if Path(text).exists():
        return Wanted(Path(text).name, {}, str(Path(text).resolve()))
    raise WrongUsage(f"--load {text}", "there is no such file or generator", f"a file, or {', '.join(GENERATORS)}")


def machine_of(options: argparse.Namespace, count: int, load: Wanted) -> Machine:
    """The simulated machine that the options describe."""
    from ...bench.lab import generators, runs
    from ...bench.lab.world import Costs, Machine

    speeds = runs.speeds_of("" if load.path else load.name)
    try:
        if options.speeds:
            speeds = tuple(float(word) for word in options.speeds.split(","))
        costs = Costs(**{name: round(value) for name, value in options.costs.items()})
    except ValueError as error:
        raise WrongUsage(f"--speeds {options.speeds}", "it is no list of numbers", "write 1,0.6") from error
    except TypeError as error:
        known = ", ".join(Costs.__dataclass_fields__)
        raise WrongUsage("--costs", f"there is none of that name: {', '.join(options.costs)}", known) from error
    capacity = generators.CAPACITY if options.resources else ()
    return Machine(
        count,
        speeds=speeds,
        pairs=options.pairs,
        loops=options.loops,
        seats=options.seats,
        capacity=capacity,
        costs=costs,
    )


def named(options: argparse.Namespace) -> list[str]:
    """The policies of --policy, and for `compare` the baselines that are not among them."""
    from ...bench.lab import policy

    names = policy.names() if options.policy == "all" else list(filter(None, options.policy.split(",")))
    if not names:
        raise WrongUsage("--policy", "it names none", "see corelane lab list")
    beside = BASELINES if options.action == "compare" and not options.alone else ()
    names += [name for name in beside if name not in names]
    if options.action == "compare" and options.baseline and options.baseline not in names:
        raise WrongUsage(f"--baseline {options.baseline}", "it does not run", f"one of {', '.join(names)}")
    return names


def _policies(options: argparse.Namespace) -> list[tuple[str, Mapping[str, float]]]:
    """What --policy names, with the settings of --set that each has. Loads them, so that a wrong one is told now."""
    from ...bench.lab import policy

    settings = {name: value for one in options.set for name, value in one.items()}
    found: list[tuple[str, Mapping[str, float]]] = []
    used: set[str] = set()
    for name in named(options):
        known = policy.known(name).settings
        mine = {key: value for key, value in settings.items() if key in known}
        policy.load(name, mine)
        used |= mine.keys()
        found.append((name, mine))
    if lost := settings.keys() - used:
        raise WrongUsage(f"--set {', '.join(sorted(lost))}", "none of these policies has it", "see corelane lab list")
    return found


def run(options: argparse.Namespace) -> int:
    """Run the policies, and with `compare` sweep their settings before; then say what came of it."""
    from ...bench.harness import plot
    from ...bench.harness.session import Session
    from ...bench.lab import comparing, runs

    for path in (options.json if options.json != "-" else None, options.plot):
        if path:
            check_writable(Path(path))
    if options.plot:
        plot.check()
    with words_are_wrong():
        load, policies = wanted(options.load), _policies(options)
        machines = [machine_of(options, count, load) for count in options.cores]
        load.made(options.cores[0], options.seed)
    processes = options.processes or len(os.sched_getaffinity(0))
    seeds = range(options.seed, options.seed + (1 if load.path else options.seeds))
    page = _page(options)
    with Session("lab", seconds=0.2, options=options) as session:
        tasks = runs.tasks_of(policies, load, machines, round(options.interval_us * 1e3), options.room, seeds)
        if options.action == "compare":
            tasks = _swept(options, tasks, processes, session)
        done = runs.every(tasks, processes, session.say, options.ray)
        comparing.fill(session, done)
    document = session.document()
    told = sys.stderr if options.json == "-" else sys.stdout
    print(comparing.table(document), file=told)
    if options.action == "compare":
        baseline = options.baseline or "fifo"
        for pair in comparing.pairs(done, baseline):
            between = f" ({pair['from']:.3g} to {pair['to']:.3g})" if pair["from"] is not None else ""
            over = f"{pair['over']:.3g}{between} times the mean completion of {baseline}"
            print(f"{pair['policy']}, {pair['cores']} cores: {over}", file=told)
    _write(options, document, page, told)
    return 0


def _swept(options: argparse.Namespace, tasks: list[Task], processes: int, session: Session) -> list[Task]:
    """The tasks with the best settings of each policy on each number of cores, found with seeds of their own. A file is
    one load, whatever the seed: there they are found on what is shown, which is said."""
    from dataclasses import replace

    from ...bench.lab import runs

    firsts = [task for task in tasks if task.seed == options.seed]
    file = firsts[0].load.path
    if file:
        why = f"{Path(file).name} is one load, without other seeds"
        session.note(f"settings were chosen on the load that is shown: {why}")
    tried = [
        replace(task, settings={**settings, **task.settings}, seed=options.seed + 1_000_000 + i)
        for task in firsts
        for settings in runs.swept(task.policy)
        for i in range(1 if file else 2)
    ]
    done: list[Done] = runs.every(tried, processes, lambda text: session.say(f"sweep, {text}"), options.ray)
    chosen = {(t.policy, t.machine.cores): t.settings for t in runs.best(tried, done, options.goal)}
    session.settings["sweep_seeds"] = sorted({task.seed for task in tried})
    return [replace(task, settings=chosen[task.policy, task.machine.cores]) for task in tasks]


def _page(options: argparse.Namespace) -> Any:
    from ..benchpage import Page

    return Page(Path(options.report) / "index.html", "corelane lab") if options.report else None


def _write(options: argparse.Namespace, document: dict[str, Any], page: Any, told: Any) -> None:
    from ...bench.harness import document as doc
    from ...bench.lab import plots
    from ..benchpage import drawn_or_why

    if options.json == "-":
        print(json.dumps(document, indent=1, allow_nan=False))
    elif options.json:
        doc.write(document, Path(options.json))
    if options.plot or page:
        drawn, failure = drawn_or_why(document, plots_of(plots), Path(options.plot) if options.plot else None)
        if page:
            page.add(document, drawn)
        if failure:
            raise failure
    for path in filter(None, (options.json if options.json != "-" else None, options.plot)):
        print(f"wrote {path}", file=told)
    if page:
        print(f"wrote {page.path}", file=told)


def plots_of(plots: Any) -> Any:
    """What `drawn_or_why` wants: something with a function `plot`."""
    return argparse.Namespace(plot=plots.draw)
