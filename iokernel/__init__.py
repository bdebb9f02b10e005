"""The dedicated core: polls the network, switches frames between applications and the outside, keeps them apart.

Owns: the loops (C threads, each pinned to a core), the arenas of all applications, the control socket.
Threads: n loops in C; one Python thread for registration, statistics and signals, never on a polled core.
Invariants: a loop never blocks but when idle, never allocates, and believes nothing that an application wrote; every
frame ends in exactly one counter; what an application does costs that application.

Start reading at iokernel.h (what a round does, what balances), then loop.c; on the Python side iokernel.py.
Files in C: setup (life of an iokernel), app (registration), loop, steer (frames from outside), switch (frames from
applications), deliver (copying), limits (token buckets, turns), wake, idle. In Python: iokernel, server (control
socket, with lock, peers, worker), addresses, settings, cores and manager (who gets cores), kthreads (whether they may
be managed), report (statistics), moves (the log of moves), areas (storage that applications are given; areas_device
and areas_table: on a raw disk), main (`corelane up`).

The policies (policy.h, policies/, docs/policies.md) decide how many cores an application gets; the simulator
(bench/sim) calls the same functions. policy_host is where the loop calls one, policy_guard what bounds one that is not
built in, policy_trial what refuses it before; policy.py loads policies by name and installs them (policy_import,
policy_numba, policy_so: from a module or a shared object).

Importing this package imports neither numpy nor numba: an iokernel's memory is a promise (docs/iokernel.md).
"""

from .control.settings import AppSettings, ArenaDefaults
from .iokernel import Iokernel

__all__ = ["AppSettings", "ArenaDefaults", "Iokernel"]
