"""The dedicated core: polls the network, switches frames between applications and the outside, moves cores.

C, one pinned thread a loop:
    state/      the structures that a loop's rooms share: loop, application, kthread, core
    loop/       a loop's round, its sleep, its commands; registration, start and stop
    switch/     frames: from uplinks (steer.c), from applications (switch.c), to where they go (deliver.c)
    cores/      who gets which core, and how a core changes hands
    policy/     where a policy is called from and what bounds it; policies/: the policies that come with it

Python, one thread of control, never on a polled core:
    iokernel.py   the iokernel as an object; main.py: `corelane up`
    control/      the control socket, registration, statistics
    areas/        storage areas: parts of a disk that applications are given by name

Invariants: a loop never blocks but when idle, never allocates, and believes nothing that an application wrote. Every
frame ends in exactly one counter. What an application does costs that application.

Start reading at state/iokernel.h (what a round does, what balances), then loop/loop.c; in Python at iokernel.py.
Importing this package imports neither numpy nor numba: an iokernel's memory is a promise (docs/iokernel.md).
"""

from ..runtime.config import AppConfig, NetworkConfig, UserConfig
from .control.settings import Access, Allocation, Allowance, AppMemory, Idle, Outside, Patience
from .iokernel import Iokernel

__all__ = [
    "Access",
    "Allocation",
    "Allowance",
    "AppConfig",
    "AppMemory",
    "Idle",
    "Iokernel",
    "NetworkConfig",
    "Outside",
    "Patience",
    "UserConfig",
]
