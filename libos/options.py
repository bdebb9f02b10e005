"""Options of a Runtime, in groups of one concern each. A value outside of its limits is refused by ConfigError.

Runtime(path, kthreads=2, scheduler=Scheduler(quantum_us=50), share=CoreShare(guaranteed=1))
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from ..runtime.options import Group, option
from ..runtime.tracing import Trace

__all__ = ["CoreShare", "Network", "Scheduler", "Trace"]

_MAX_U32 = 2**32 - 1


def _gateway(value: str) -> None:
    try:
        ipaddress.IPv4Address(value)
    except ValueError as error:
        raise ValueError(f"a gateway as in '10.77.0.1' ({error})") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler(Group):
    """How kthreads run uthreads.

    quantum_us: a uthread that has run for so long lets others go first, at its next probe (docs/uthreads.md). 0: never,
    so that one which computes on end keeps its kthread from packets and timers. None: 1000 for kind "batch", whose jobs
    run side by side that way, else 0. quantum_signal: an iokernel sends it a signal then, too, for code without probes
    that may be interrupted (docs/cores.md); if its configuration allows that, and not in embedded mode. stack_bytes: of
    a uthread, 16 KiB or more; 0: 8 MiB for kind "batch", else 64 KiB. spin_us: how long a kthread without work spins
    before it sleeps, if poll is "adaptive". stop_s: how long a stop waits for a kthread whose code does not come back.
    steal: siblings take requests from a kthread that is stuck in a long handler; False keeps each flow on its kthread.
    """

    quantum_us: int | None = option(None, "time that a uthread runs before it yields", low=0, high=_MAX_U32)
    quantum_signal: bool = option(False, "end a quantum by a signal, too")
    stack_bytes: int = option(0, "stack of a uthread", low=0, high=_MAX_U32)
    spin_us: float = option(20.0, "time that an idle kthread spins", low=0, high=1e6)
    stop_s: float = option(5.0, "time that a stop waits for a handler to come back", low=0.001, high=1e6)
    steal: bool = option(True, "take requests from siblings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Network(Group):
    """The network stack.

    gateway: next hop for destinations beyond the subnet, "10.77.0.1"; None: the iokernel's, embedded: none.
    udp_checksums: generate them (RFC 768 permits none; off only for trusted links). memory_mib: what waits for readers
    of sockets may take so much; only what is needed is touched. seed: of the secret by which flows are spread, to
    repeat a run; None: a random one, by a virtual clock always the same.
    """

    gateway: str | None = option(None, "next hop beyond the subnet", check=_gateway)
    udp_checksums: bool = option(True, "generate UDP checksums")
    memory_mib: int = option(64, "memory of what waits for readers", low=1, high=1 << 20)
    seed: int | None = option(None, "seed of the secret by which flows are spread", low=1, high=2**64 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreShare(Group):
    """What a runtime wishes of the cores where an iokernel manages them (docs/cores.md).

    Guarantee, maximum and weight are granted as far as its configuration allows, which is not at all where that says
    nothing; the event "limited" tells what was not.

    guaranteed: cores that it has whenever it has work for them. max_cores: most cores, at most as many as kthreads;
    0: as many. weight: share among equals. deadline_us: what its tail should stay under; 0: nothing.
    """

    guaranteed: int = option(0, "cores that it has whenever it wants them", low=0, high=_MAX_U32)
    max_cores: int = option(0, "most cores", low=0, high=_MAX_U32)
    weight: int = option(1, "share among equals", low=1, high=_MAX_U32)
    deadline_us: int = option(0, "what its tail should stay under", low=0, high=_MAX_U32)
