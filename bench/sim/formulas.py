"""What queueing theory says, to check the simulator by, and an index of fairness. Times in ns, rates in 1/ns."""

from __future__ import annotations

from collections.abc import Callable, Sequence


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


def mean_sojourn_shared(servers: int, rate: float, mean_service: float, slowed: float = 1.0) -> float:
    """Mean time in M/G/n whose requests share the servers evenly, as with a quantum that goes to 0: whatever the
    distribution of service (J. W. Cohen, "The multiple phase service network with generalized processor sharing",
    1979). slowed: by how much everything takes longer while more requests are there than servers, as by preemptions.
    """
    offered = rate * mean_service
    last = present = 1.0  # of the number of requests that are there: weights of the last one and of all
    number = 0.0
    for n in range(1, servers + 1):
        last *= offered / n
        present += last
        number += n * last
    more = offered * slowed / servers  # weight of each further one over that of the one before
    beyond = last * more / (1 - more)
    return (number + beyond * (servers + 1 / (1 - more))) / (present + beyond) / rate


def preemptions(over: Callable[[float], float], quantum: float) -> float:
    """Of a request, on average, where others always wait. over: probability that its service is longer than a time."""
    total, n = 0.0, 1
    while (more := over(n * quantum)) > 1e-12:
        total += more
        n += 1
    return total


def most_load(mean_service: float, preempted: float, cost: float) -> float:
    """Load at which no time is left, where each request is preempted so often on average."""
    return mean_service / (mean_service + preempted * cost)


def mean_waits_priority(servers: int, rates: Sequence[float], mean_service: float) -> list[float]:
    """Mean waits of classes, the first one first, in M/M/n whose classes have the same service and are not preempted
    (Cobham, "Priority assignment in waiting line problems", 1954)."""
    offered = sum(rates) * mean_service
    residual = erlang_c(servers, offered) * mean_service / servers
    waits, before = [], 0.0
    for rate in rates:
        upto = before + rate * mean_service / servers
        waits.append(residual / ((1 - before) * (1 - upto)))
        before = upto
    return waits


def mean_sojourns_preemptive(servers: int, rates: Sequence[float], mean_service: float) -> list[float]:
    """The same of mean times in M/M/n in which a class preempts those after it: whoever is there of the first k classes
    is there as without the others, and the mean number of each class is the difference (Little's law)."""
    sojourns, rate, number = [], 0.0, 0.0
    for one in rates:
        rate += one
        upto = rate * (mean_wait_mmn(servers, rate, mean_service) + mean_service)
        sojourns.append((upto - number) / one)
        number = upto
    return sojourns
