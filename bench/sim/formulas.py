"""What queueing theory says, to check the simulator by, and an index of fairness. Times in ns, rates in 1/ns."""

from __future__ import annotations

from collections.abc import Sequence


def jain(shares: Sequence[float]) -> float:
    """Of equals: 1 if all have as much, 1 / n if one has all (Jain, Chiu and Hawe, 1984); nan of nothing."""
    squares = sum(x * x for x in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else float("nan")


def mean_sojourn_ps(rate: float, mean_service: float) -> float:
    """Mean time in M/G/1 with processor sharing, whatever the distribution of service (Kleinrock, 1967)."""
    return mean_service / (1 - rate * mean_service)


def erlang_c(servers: int, offered: float) -> float:
    """Probability that an arrival waits in M/M/n at `offered` erlangs (< servers), by Erlang B's recurrence."""
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = offered * blocked / (n + offered * blocked)
    return blocked / (1 - (offered / servers) * (1 - blocked))


def mean_wait_mmn(servers: int, rate: float, mean_service: float) -> float:
    """Mean wait in the queue of M/M/n."""
    offered = rate * mean_service
    return erlang_c(servers, offered) * mean_service / (servers - offered)


def mean_wait_mg1(rate: float, first_moment: float, second_moment: float) -> float:
    """Mean wait in the queue of M/G/1 (Pollaczek and Khinchine)."""
    return rate * second_moment / (2 * (1 - rate * first_moment))
