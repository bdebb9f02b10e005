"""Which cores to poll on, and why: the choice that `corelane up` makes and `corelane doctor` explains.

    plan = choose(Topology.read(), kthreads=4)
    plan.iokernel, plan.kthreads, plan.may_spin
    print("\\n".join(plan.reasons))

The rules, in order of weight:
  1. An iokernel loop polls for ever, so it gets the quietest CPU: isolated, without tick, without interrupts of disks
     and NICs, not CPU 0 (where the kernel's own work goes).
  2. A CPU is given to one thread that spins. Threads on hyper-threads of one core take each other's half: whole cores
     first, siblings only when cores run out, the iokernel's sibling last.
  3. Near: same NUMA node as the NIC, else as the iokernel.
  4. Fewer CPUs than threads, or a cgroup quota below their number: nobody may spin, waiting means sleeping.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .errors import SystemLimit
from .topology import Topology, format_cpu_list


@dataclass
class Placement:
    """A choice. iokernel: a CPU a loop; kthreads: a CPU a kthread, repeated if there are more kthreads than CPUs;
    may_spin: whether waiting threads may keep their CPUs; reasons: each decision in a sentence."""

    iokernel: list[int] = field(default_factory=list)
    kthreads: list[int] = field(default_factory=list)
    may_spin: bool = True
    reasons: list[str] = field(default_factory=list)


def choose(
    machine: Topology,
    kthreads: int = 1,
    loops: int = 1,
    *,
    fixed_loops: tuple[int, ...] = (),
    taken: tuple[int, ...] = (),
    node: int | None = None,
) -> Placement:
    """Choose CPUs for `loops` iokernel loops (0: embedded mode) and `kthreads` kthreads.

    fixed_loops: CPUs that the configuration gives to the loops; taken: CPUs that others poll on already; node: NUMA
    node of the NIC, if it has one. SystemLimit if a fixed CPU cannot be used.
    """
    plan = Placement()
    free = [c for c in machine.usable if c not in taken]
    if not free:
        free = list(machine.usable)
        plan.may_spin = False
        plan.reasons.append(
            f"all usable CPUs ({format_cpu_list(machine.usable)}) are polled on already: shared, by sleeping"
        )
    elif taken:
        plan.reasons.append(f"CPUs {format_cpu_list(tuple(taken))} are polled on already: left alone")
    _place_loops(machine, plan, free, len(fixed_loops) or loops, fixed_loops, node)
    _place_kthreads(machine, plan, free, kthreads, node)
    _judge_spinning(machine, plan)
    return plan


def _place_loops(
    machine: Topology, plan: Placement, free: list[int], loops: int, fixed: tuple[int, ...], node: int | None
) -> None:
    if fixed:
        for cpu in fixed:
            if cpu not in machine.usable:
                raise SystemLimit(
                    f"run an iokernel loop on CPU {cpu}",
                    f"this process may use CPUs {format_cpu_list(machine.usable)}",
                    "choose one of these in iokernel.cores, or start with another taskset or cpuset",
                )
        plan.iokernel = list(fixed)
        plan.reasons.append(f"iokernel on CPUs {format_cpu_list(fixed)}: the configuration says so")
        for cpu in fixed:
            plan.reasons += [f"but {why}" for why in _noise(machine, cpu)]
        return
    order = sorted(free, key=lambda c: _quietness(machine, c, node))
    for cpu in order:
        if len(plan.iokernel) == loops:
            break
        if not _shares_core(machine, cpu, plan.iokernel):
            plan.iokernel.append(cpu)
            plan.reasons.append(f"iokernel on CPU {cpu}: {_praise(machine, cpu, free, node)}")
    for cpu in order:  # whole cores ran out: their siblings, then CPUs a second time
        if len(plan.iokernel) < loops and cpu not in plan.iokernel:
            plan.iokernel.append(cpu)
            plan.reasons.append(
                f"iokernel also on CPU {cpu}, though it shares a core with another loop: no whole core is left"
            )
    while len(plan.iokernel) < loops:
        plan.iokernel.append(order[len(plan.iokernel) % len(order)])
        plan.may_spin = False
    if loops > len(order):
        plan.reasons.append(f"{loops} loops on {len(order)} CPUs: they take turns")


def _place_kthreads(machine: Topology, plan: Placement, free: list[int], n: int, node: int | None) -> None:
    if n == 0:
        return
    near = node if node is not None or not plan.iokernel else machine.cpus[plan.iokernel[0]].node
    pool = [c for c in free if c not in plan.iokernel]
    if not pool:
        plan.may_spin = False
        plan.kthreads = [free[k % len(free)] for k in range(n)]
        plan.reasons.append(
            f"kthreads share CPU {format_cpu_list(tuple(set(plan.kthreads)))} with the iokernel: there is no other"
        )
        return
    chosen: list[int] = []
    while pool:
        best = min(pool, key=lambda c: _cost(machine, c, chosen, plan.iokernel, near))
        chosen.append(best)
        pool.remove(best)
    plan.kthreads = [chosen[k % len(chosen)] for k in range(n)]
    for k, cpu in enumerate(plan.kthreads[: len(chosen)]):
        plan.reasons.append(
            f"kthread {k} on CPU {cpu}: {_excuse(machine, cpu, plan.kthreads[:k], plan.iokernel, near)}"
        )
    if n > len(chosen):
        plan.may_spin = False
        plan.reasons.append(f"{n} kthreads on {len(chosen)} CPUs: they take turns")


def _judge_spinning(machine: Topology, plan: Placement) -> None:
    spinners = len({*plan.iokernel, *plan.kthreads})
    if machine.quota_cpus is not None and machine.quota_cpus < spinners:
        plan.may_spin = False
        allowed = f"the cgroup allows {machine.quota_cpus:g} CPUs of time"
        plan.reasons.append(f"{allowed}: {spinners} spinning threads would be throttled for milliseconds at a time")
    plan.reasons.append(
        "waiting threads may spin" if plan.may_spin else "waiting threads sleep: polling mode block, or adaptive"
    )


def _shares_core(machine: Topology, cpu: int, others: list[int]) -> bool:
    return any(o in machine.cpus[cpu].siblings for o in others if o != cpu)


def _quietness(machine: Topology, cpu: int, node: int | None) -> tuple[object, ...]:
    """Sort key for polling: the smaller the quieter."""
    c = machine.cpus[cpu]
    return (
        not c.isolated,
        not c.tickless,
        node is not None and c.node != node,
        bool(machine.interrupts_on(cpu, "disk")),
        sum(i.counts.get(cpu, 0) for i in machine.interrupts_on(cpu, "nic")) > 0,
        min(c.siblings) == 0,
        cpu,
    )


def _cost(machine: Topology, cpu: int, chosen: list[int], loops: list[int], node: int | None) -> tuple[object, ...]:
    """Sort key for kthreads: the smaller the better."""
    return (
        _shares_core(machine, cpu, loops),
        _shares_core(machine, cpu, chosen),
        node is not None and machine.cpus[cpu].node != node,
        *_quietness(machine, cpu, None),
    )


def _noise(machine: Topology, cpu: int) -> list[str]:
    """What disturbs a polled CPU, or is disturbed by it."""
    out = []
    disks = machine.interrupts_on(cpu, "disk")
    if disks:
        names = ", ".join(i.name for i in disks)
        out.append(f"CPU {cpu} takes the disk's interrupt ({names}): while a thread spins there, writes may take 4 ms")
    nics = machine.interrupts_on(cpu, "nic")
    if nics:
        out.append(f"CPU {cpu} takes interrupts of a NIC ({', '.join(i.name for i in nics)})")
    return out


def _praise(machine: Topology, cpu: int, free: list[int], node: int | None) -> str:
    c = machine.cpus[cpu]
    good = []
    if c.isolated:
        good.append("isolated")
    if c.tickless:
        good.append("without timer tick")
    if node is not None and c.node == node:
        good.append(f"on the NIC's NUMA node {node}")
    elsewhere = [o for o in free if o != cpu and machine.interrupts_on(o, "disk")]
    if elsewhere and not machine.interrupts_on(cpu, "disk"):
        good.append(f"the disk's interrupt goes to CPU {format_cpu_list(elsewhere)}")
    if len(free) == 1:
        good.append("the only one")
    text = ", ".join(good) or "none is quieter"
    bad = _noise(machine, cpu)
    return f"{text}; but {'; '.join(bad)}" if bad else text


def _excuse(machine: Topology, cpu: int, before: list[int], loops: list[int], node: int | None) -> str:
    c = machine.cpus[cpu]
    parts = []
    if _shares_core(machine, cpu, loops):
        parts.append("shares a core with the iokernel, since no other is left")
    elif _shares_core(machine, cpu, before):
        parts.append("shares a core with another kthread, since no whole core is left")
    else:
        parts.append("a core of its own")
    if node is not None and c.node != node:
        parts.append(f"on NUMA node {c.node}, since node {node} is full")
    if c.isolated:
        parts.append("isolated")
    return "; ".join(parts + _noise(machine, cpu))
