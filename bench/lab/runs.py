"""Many runs: policies, cores and seeds, in processes beside each other, or on a Ray cluster where there is one.

A user's own policy is called in a child process: one which ends its process harms nothing. The same seed gives all
policies the same load.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ...runtime.errors import CorelaneError
from . import generators, loads, measures, policy
from .world import Machine, World, compile_loop

SWEEP_MOST = 64  # combinations of settings


@dataclass(frozen=True)
class Wanted:
    """A load: a file, or a generator and its settings."""

    name: str
    settings: Mapping[str, float] = field(default_factory=dict)
    path: str = ""

    def made(self, cores: int, seed: int) -> loads.Load:
        return loads.read(self.path) if self.path else generators.make(self.name, self.settings, cores, seed)


def speeds_of(load: str) -> tuple[float, ...]:
    """Of cores, for loads of that generator (or a file's name), if nobody says which."""
    return generators.SPEEDS if load == "cluster" else (1.0,)


@dataclass(frozen=True)
class Task:
    """One run. settings: of the policy."""

    policy: str
    settings: Mapping[str, float]
    load: Wanted
    machine: Machine
    interval_ns: int
    room: int
    seed: int


@dataclass(frozen=True)
class Done:
    """What a run came to: numbers, and shapes for plots."""

    task: Task
    numbers: dict[str, float]
    shape: dict[str, list[float]]


def one(task: Task) -> Done:
    """Make the load, run the policy, measure."""
    load = task.load.made(task.machine.cores, task.seed)
    world = World(load, task.machine, interval_ns=task.interval_ns, room=task.room, seed=task.seed)
    ran = world.run(policy.load(task.policy, task.settings))
    return Done(task, measures.measured(ran), measures.shape(ran))


def every(
    tasks: Sequence[Task], processes: int, say: Callable[[str], None] = lambda text: None, ray: bool = False
) -> list[Done]:
    """All of them, in their order. CorelaneError of the first that fails, which names its policy. One process: this
    one, if no policy is a user's own."""
    found: dict[int, Done] = {}
    here = processes == 1 and not any(":" in task.policy for task in tasks)
    ran = _on_ray(tasks) if ray else enumerate(map(one, tasks)) if here else _in_processes(tasks, processes)
    for i, done in ran:
        found[i] = done
        task = done.task
        say(f"{len(found)} of {len(tasks)}: {task.policy}, {task.machine.cores} cores, seed {task.seed}")
    return [found[i] for i in range(len(tasks))]


def _in_processes(tasks: Sequence[Task], processes: int) -> Iterator[tuple[int, Done]]:
    compile_loop()
    pool = ProcessPoolExecutor(max(min(processes, len(tasks)), 1), mp_context=get_context("spawn"))
    try:
        with _own_script():  # the processes are started here
            numbers: dict[Future[Done], int] = {pool.submit(one, task): i for i, task in enumerate(tasks)}
        for future in as_completed(numbers):
            i = numbers[future]
            try:
                yield i, future.result()
            except BrokenProcessPool as error:
                raise _ended(sorted({task.policy for task in tasks})) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _ended(names: Sequence[str]) -> CorelaneError:
    """Of policies one of which took its process with it."""
    why = "a policy ended the process that called it, as by writing into tables what cannot be"
    return CorelaneError(f"run {', '.join(names)}", why, "run them one by one to see which" if names[1:] else "")


def in_a_child(name: str, function: Callable[..., Any], *given: Any) -> Any:
    """What the function gives, in a process of its own: a policy of that name which ends it ends nothing else."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        with _own_script():
            future = pool.submit(function, *given)
        try:
            return future.result()
        except BrokenProcessPool as error:
            raise _ended([name]) from error


@contextmanager
def _own_script() -> Iterator[None]:
    """A process that is spawned first runs the script of this one, as a module: that of `corelane` would run its
    command again. It runs child.py instead."""
    main = sys.modules["__main__"].__dict__
    file = main.get("__file__")
    main["__file__"] = str(Path(__file__).resolve().parent / "child.py")
    try:
        yield
    finally:
        main["__file__"] = file
        if file is None:
            del main["__file__"]


def _on_ray(tasks: Sequence[Task]) -> Iterator[tuple[int, Done]]:
    """On a Ray cluster as it is: `ray.init` finds the one that RAY_ADDRESS names, or makes one of this machine."""
    try:
        import ray  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise CorelaneError("run on Ray", "it is not installed", "pip install ray, or leave --ray out") from error
    ray.init(ignore_reinit_error=True)
    remote = ray.remote(one)
    waiting = {remote.remote(task): i for i, task in enumerate(tasks)}
    while waiting:
        (ready, *_), _ = ray.wait(list(waiting), num_returns=1)
        yield waiting.pop(ready), ray.get(ready)


def tasks_of(
    policies: Sequence[tuple[str, Mapping[str, float]]],
    load: Wanted,
    machines: Sequence[Machine],
    interval_ns: int,
    room: int,
    seeds: Sequence[int],
) -> list[Task]:
    """Each policy on each machine with each seed."""
    return [
        Task(name, dict(settings), load, machine, interval_ns, room, seed)
        for name, settings in policies
        for machine in machines
        for seed in seeds
    ]


def swept(name: str) -> list[dict[str, float]]:
    """Settings of a policy to be tried: all combinations of its SWEEP, with its defaults first."""
    found = policy.load(name)
    sweep = {key: values for key, values in found.sweep.items() if key in found.settings}
    every_ = [dict(zip(sweep, values, strict=True)) for values in itertools.product(*sweep.values())]
    if len(every_) > SWEEP_MOST:
        raise CorelaneError(f"sweep {name}", f"its SWEEP has {len(every_)} combinations", f"at most {SWEEP_MOST}")
    return [{}, *(settings for settings in every_ if settings)]


def best(tasks: Sequence[Task], done: Sequence[Done], goal: str, less: bool = True) -> list[Task]:
    """Of the runs of a sweep, for each policy and number of cores, those with the best mean of `goal` over seeds. A run
    that leaves jobs undone is worse than all that do not."""
    groups: dict[tuple[str, int], dict[str, list[tuple[Task, Done]]]] = {}
    for task, one_ in zip(tasks, done, strict=True):
        by_settings = groups.setdefault((task.policy, task.machine.cores), {})
        by_settings.setdefault(repr(sorted(task.settings.items())), []).append((task, one_))
    chosen = []
    for by_settings in groups.values():
        kept = min(by_settings.values(), key=lambda pairs: _badness([d for _, d in pairs], goal, less))
        chosen += [task for task, _ in kept]
    return chosen


def _badness(done: Sequence[Done], goal: str, less: bool) -> tuple[float, float]:
    left = sum(d.numbers["not_done"] for d in done)
    worst = float("inf") if less else float("-inf")
    mean = sum(d.numbers.get(goal, worst) for d in done) / len(done)
    return left, mean if less else -mean


def sources() -> list[Path]:
    """All that decide what a run gives: this room's, its policies' and their mechanisms', and the simulator's."""
    here = Path(__file__).resolve().parent
    return [*sorted(here.rglob("*.py")), *sorted((here.parent / "sim").glob("*.py"))]


def stamp() -> str:
    """Of these sources."""
    here = Path(__file__).resolve().parent.parent
    texts = [(str(path.relative_to(here)), path.read_bytes()) for path in sources()]
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:16]
