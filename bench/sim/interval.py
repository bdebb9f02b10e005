"""Cores needed for a limit on the tail against the time between decisions (Shenango, NSDI 2019).

One application, at 40 % of the cores on average, under a policy that keeps some cores spare beyond what is in use. For
each interval the least headroom that keeps the limit is found by bisection; what it holds on average is the price of
deciding rarely. It is found for two kinds of arrivals: Poisson's of one rate, whose swings are small, so that some
spare cores absorb them at any interval; and a rate that shifts, between 1 - SWING and 1 + SWING times the mean, every
PHASE_NS on average (a Poisson process modulated by two states). A policy that decides less often than that has to hold
all the time what the higher rate needs.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from ...iokernel.policy.policy import Policy
from ...iokernel.policy.policy import load as load_policy
from ..harness.session import Session
from .model import App, LogNormal, Result, Simulation
from .sampling import GOAL, LEAST_MEMORIES, Sampled, carried, memory_ns, sample
from .studies import COSTS, EVENTS_PER_S, LIMIT_US, SERVICE_NS, finite

INTERVALS_US = (5, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
CORES = 16
LOAD = 0.4
SIGMA = 0.6  # of the logarithm of the service
SWING, PHASE_NS = 0.75, 500_000
ARRIVALS = {"steady": 0.0, "shifting": SWING}
LEAST_TURNS = 100  # decisions and phases in a run, however long they are
KNOWN_TURNS = 400  # in one that knows a tail: one bad decision in a hundred can make the whole p99.9


def headroom(view: Any, apps: Any, spare: int = 1) -> None:
    """A policy that keeps cores spare: what a slow allocator must do, since bursts do not wait for it."""
    for i in range(view.n_apps):
        busy = apps[i].cores - apps[i].idle
        waiting = 1 if apps[i].packet_delay_ns > 0 else 0
        apps[i].grant = busy + waiting + spare


@dataclass(frozen=True)
class Tried:
    """What became of a headroom."""

    seen: Result
    sampled: Sampled

    @property
    def p999_us(self) -> float:
        return self.seen.percentile_us(99.9)

    @property
    def keeps(self) -> bool:
        """The limit."""
        return self.p999_us <= LIMIT_US

    @property
    def sure(self) -> bool:
        """The tail is known, or beyond the limit however badly it is known: by two standard errors, or since the load
        is not carried."""
        return self.sampled.known or not carried(self.seen) or self.p999_us * (1 - 2 * self.sampled.error) > LIMIT_US


def tried(policy: Policy, spare: int, interval_ns: int, swing: float, events: float) -> Tried:
    """Run with so many cores spare."""
    rate = LOAD * CORES / SERVICE_NS * 1e9
    phase_ns = PHASE_NS if swing else 0
    app = App("kv", rate_rps=rate, service=LogNormal(SERVICE_NS, SIGMA), swing=swing, phase_ns=phase_ns)
    chosen = policy.with_settings(spare=spare)
    world = Simulation([app], CORES, policy=chosen, interval_ns=interval_ns, costs=COSTS, seed=5)
    turn_ns = max(interval_ns, phase_ns)
    memory = max(memory_ns(LOAD, CORES, SERVICE_NS), KNOWN_TURNS * turn_ns / LEAST_MEMORIES)
    least_ns = LEAST_TURNS * turn_ns
    return Tried(*sample(world, lambda: world.result("kv"), events, memory, least_ns))


def least(policy: Policy, interval_us: int, swing: float, events: float) -> tuple[int, dict[int, Tried]]:
    """The least headroom that keeps the limit, CORES + 1 if none does, and all that were tried."""
    all_tried: dict[int, Tried] = {}

    def keeps(spare: int) -> bool:
        all_tried[spare] = tried(policy, spare, interval_us * 1000, swing, events)
        return all_tried[spare].keeps

    return bisect_left(range(CORES + 1), True, key=keeps), all_tried


def cores_against_interval(session: Session, seconds: float) -> None:
    """A row for each interval and kind of arrivals. `known`: that its headroom keeps the limit is known, and that one
    core less does not."""
    policy = load_policy(f"{__name__}:headroom")
    for arrivals, swing in ARRIVALS.items():
        unknown = []
        for interval_us in INTERVALS_US:
            session.say(f"cores needed with a decision every {interval_us} us, {arrivals} load")
            spare, by_spare = least(policy, interval_us, swing, seconds * EVENTS_PER_S)
            if spare > CORES:
                session.note(
                    f"no headroom on {CORES} cores keeps the limit with a decision every {interval_us} us, "
                    f"{arrivals} load"
                )
                continue
            chosen = by_spare[spare]
            known = chosen.sure and (spare == 0 or by_spare[spare - 1].sure)
            if not known:
                unknown.append(interval_us)
            session.arm(
                f"interval {interval_us} us, {arrivals}",
                arrivals=arrivals,
                interval_us=interval_us,
                headroom_cores=spare,
                n=chosen.seen.done,
                cores_held=chosen.seen.cores_held,
                cores_worked=chosen.seen.cores_worked,
                p999_us=finite(chosen.p999_us),
                p999_error=finite(chosen.sampled.error),
                one_less_p999_us=finite(by_spare[spare - 1].p999_us) if spare else None,
                known=known,
            )
        if unknown:
            session.note(
                f"the least headroom under {arrivals} load is not known with a decision every "
                f"{', '.join(map(str, unknown))} us: its p99.9, or that with one core less, is not known to "
                f"{100 * GOAL:g} %; give more --seconds"
            )
