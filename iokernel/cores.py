"""Which CPU runs what, decided when an application registers and not changed later.

Loops have their CPUs for themselves. Kthreads get distinct worker CPUs while there are free ones; then the least used
ones are shared, and whoever shares must park instead of spinning, or it would starve its neighbour for time slices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


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
