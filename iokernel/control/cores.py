"""Which CPU runs what when an application registers, and what it may claim of the cores.

Loops have their CPUs for themselves. Where nothing is managed (`CoreAssigner`), kthreads get distinct worker CPUs while
there are free ones; then the least used ones are shared, and whoever shares must park instead of spinning, or it would
starve its neighbour for time slices. Nothing of this changes later.

Where cores are managed (`ManagedCores`), the CPU of a kthread is only where it begins: the loop moves cores between the
applications that are homed on it (docs/cores.md). More applications than cores are the normal case; what is refused is
a guarantee that could not be kept.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...runtime.config import AppConfig
from ...runtime.errors import Refused
from .._native import lib

KINDS: Mapping[str, int] = {"latency": lib.CL_POLICY_LATENCY, "batch": lib.CL_POLICY_BATCH}
_ASKED = {0: "latency", lib.CL_CONTROL_LATENCY: "latency", lib.CL_CONTROL_BATCH: "batch"}
_MOST_WEIGHT = 1000
_MOST_US = 10_000_000


class CoreAssigner:
    """Hands out worker CPUs. `cpus` empty: every kthread may run anywhere, and none may spin."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self._cpus = tuple(dict.fromkeys(cpus))
        self._users: Counter[int] = Counter(dict.fromkeys(self._cpus, 0))
        self._held: dict[object, tuple[int, ...]] = {}

    def take(self, owner: object, kthreads: int, wanted: Sequence[int] = ()) -> tuple[tuple[int, ...], bool]:
        """CPUs of `kthreads` kthreads of `owner` (-1: anywhere), and whether they may spin.

        wanted: CPUs that the configuration gives this application; kthreads beyond their number share them.
        """
        if not self._cpus and not wanted:
            return (-1,) * kthreads, False
        chosen: list[int] = []
        for k in range(kthreads):
            if wanted:
                cpu = wanted[k % len(wanted)]
            else:
                cpu = min(self._cpus, key=lambda c: (self._users[c], self._cpus.index(c)))
            self._users[cpu] += 1
            chosen.append(cpu)
        self._held[owner] = tuple(chosen)
        return tuple(chosen), all(self._users[cpu] == 1 for cpu in chosen)

    def give_back(self, owner: object) -> None:
        """The owner has left; unknown owners are none of ours."""
        for cpu in self._held.pop(owner, ()):
            self._users[cpu] -= 1


@dataclass(frozen=True, slots=True)
class Claim:
    """What an application gets of managed cores. The configuration decides; a wish counts as far as it allows.

    kind: "latency" or "batch". guaranteed: cores that it has whenever it wants them; maximum: never more. weight:
    share among equals. deadline_us: what its tail should stay under, 0 nothing. quantum_us: how long a uthread may keep
    others waiting, 0 for ever. quantum_signal: it is then sent the signal, too.
    """

    kind: str
    guaranteed: int
    maximum: int
    weight: int
    deadline_us: int
    quantum_us: int
    quantum_signal: bool


def claim(
    name: str,
    hello: Any,
    settings: AppConfig,
    kthreads: int,
    *,
    most_weight: int = 1,
    most_guaranteed: int = 0,
    may_signal: bool = False,
) -> Claim:
    """The claim of a `struct cl_control_hello` under the settings of its name.

    most_weight, most_guaranteed, may_signal: what its wishes come to at most where the settings say nothing. Raises
    Refused if a wish makes no sense, whether or not it would be granted, or if the settings do not fit its kthreads.
    """
    _check_wishes(name, hello, kthreads)
    maximum = min(int(hello.maximum) or kthreads, settings.max_cores or kthreads, kthreads)
    made_batch = settings.class_ == "batch" and _ASKED[int(hello.kind)] != "batch"
    quantum_us = int(hello.quantum_us) or (lib.CL_CONTROL_BATCH_QUANTUM_US if made_batch else 0)
    got = Claim(
        kind=settings.class_ or _ASKED[int(hello.kind)],
        guaranteed=_first(settings.guaranteed_cores, min(int(hello.guaranteed), most_guaranteed, maximum)),
        maximum=maximum,
        weight=_first(settings.weight, min(int(hello.weight) or 1, most_weight)),
        deadline_us=_first(settings.deadline_us, int(hello.deadline_us)),
        quantum_us=_first(settings.quantum_us, quantum_us),
        quantum_signal=bool(_first(settings.quantum_signal, int(hello.quantum_signal) and may_signal)),
    )
    if got.guaranteed > maximum:
        raise _refused(_too_many(got.guaranteed, name, maximum, kthreads), "give it more kthreads")
    return got


def _check_wishes(name: str, hello: Any, kthreads: int) -> None:
    if int(hello.kind) not in _ASKED:
        raise _refused(f"class {hello.kind} of {name} is none", "latency is 1, batch 2")
    if hello.maximum > kthreads:
        raise _refused(
            f"max_cores {hello.maximum} of {name} is more than its kthreads: {kthreads}",
            "a kthread runs on one core at a time",
        )
    maximum = int(hello.maximum) or kthreads
    if hello.guaranteed > maximum:
        hint = "give it more kthreads, or a smaller guarantee"
        raise _refused(_too_many(int(hello.guaranteed), name, maximum, kthreads), hint)
    if hello.weight > _MOST_WEIGHT or max(hello.deadline_us, hello.quantum_us) > _MOST_US:
        raise _refused(
            f"weight {hello.weight}, deadline {hello.deadline_us} us, quantum {hello.quantum_us} us of {name} "
            "cannot be",
            f"a weight of up to {_MOST_WEIGHT}, times of up to {_MOST_US} us",
        )


def _too_many(guaranteed: int, name: str, maximum: int, kthreads: int) -> str:
    return f"{guaranteed} guaranteed cores are more than {name} may use: {maximum}, with {kthreads} kthreads"


def not_granted(name: str, hello: Any, got: Claim, user: int) -> str:
    """What an application wished for and does not get, and which options would allow it, in a line; "": nothing."""
    wishes = (
        ("weight", "weight", int(hello.weight), got.weight),
        ("guaranteed cores", "guaranteed_cores", int(hello.guaranteed), got.guaranteed),
        ("cores at most", "max_cores", int(hello.maximum), got.maximum),
        ("quantum signals", "quantum_signal", min(int(hello.quantum_signal), 1), int(got.quantum_signal)),
    )
    lost = [(what, option, wish, has) for what, option, wish, has in wishes if wish > has]
    if not lost:
        return ""
    said = ", ".join(f"{what} {has} instead of {wish}" for what, _, wish, has in lost)
    options = ", ".join(option for _, option, _, _ in lost)
    where = f"{options} of [apps.{name}], and [users.{user}]"
    return f"it has {said}: to allow more, the iokernel's configuration has {where}"


def without_policy(hello: Any) -> str:
    """What an application wished for of cores that nobody moves, in a line; "": nothing."""
    wishes = (
        ("weight", int(hello.weight), 1),
        ("guaranteed cores", int(hello.guaranteed), 0),
        ("quantum signals", min(int(hello.quantum_signal), 1), 0),
    )
    lost = [f"{what} {wish}" for what, wish, least in wishes if wish > least]
    if not lost:
        return ""
    return f"no policy moves cores here, so it has not: {', '.join(lost)}; with one: corelane up --policy delay"


def _first(configured: int | None, asked: int) -> int:
    return asked if configured is None else configured


class ManagedCores:
    """Worker CPUs divided among loops; each loop moves its own between the applications that are homed on it."""

    def __init__(self, cpus: Sequence[int], n_loops: int) -> None:
        self.cpus = tuple(dict.fromkeys(cpus))
        self.loops = n_loops
        self._of_loop = [self.cpus[loop::n_loops] for loop in range(n_loops)]  # as struct cl_io_config says

    def of_loop(self, loop: int) -> tuple[int, ...]:
        """The CPUs that a loop manages."""
        return self._of_loop[loop]

    def begin(self, loop: int, kthreads: int) -> tuple[int, ...]:
        """Where the kthreads of an application begin: on distinct cores of the loop while these last."""
        cpus = self._of_loop[loop]
        return tuple(cpus[k % len(cpus)] for k in range(kthreads))

    def home(self, name: str, wanted: int, apps: Sequence[tuple[str, int, int]], loop: int | None = None) -> int:
        """The loop for an application with `wanted` guaranteed cores; loop: the one that the configuration names.

        apps: (name, loop, guaranteed) of those that are registered. The loop with the fewest of those that can keep the
        guarantee. Raises Refused, and says who holds the cores, if none can.
        """
        giving = tuple(x for x, cpus in enumerate(self._of_loop) if cpus)
        loops = giving if loop is None else (loop,)
        fit = [x for x in loops if wanted <= len(self._of_loop[x]) - sum(g for _, home, g in apps if home == x)]
        if loop is not None and not self._of_loop[loop]:
            raise _refused(
                f"loop {loop}, which serves {name}, has no worker core to give", f"choose one of {list(giving)}"
            )
        if not fit:
            cores = max(len(self._of_loop[x]) for x in loops)
            holders = [f"{other} {held}" for other, home, held in apps if held and home in loops]
            held_by = f"; guaranteed already: {', '.join(holders)}" if holders else ""
            raise _refused(
                f"{wanted} guaranteed cores for {name} cannot be kept: {_cores(cores)}{held_by}",
                f"lower apps.{name}.guaranteed_cores" + (", or stop one of them" if holders else ""),
            )
        return min(fit, key=[home for _, home, _ in apps].count)


def _cores(n: int) -> str:
    return f"{n} core is managed" if n == 1 else f"{n} cores are managed"


def _refused(why: str, hint: str) -> Refused:
    return Refused(why, hint=hint, errno=errno.EINVAL)
