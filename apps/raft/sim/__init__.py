"""The simulated world of Raft clusters: from one seed, clocks, a network, disks, crashes and clients.

What is where:
  history.h history.c  whether a client history is linearizable; used on real clusters, too     history.py  from Python
  queue.h queue.c      events in order of virtual time, clocks that drift
  network.h network.c  which datagrams arrive, and when

Everything is single-threaded C without clocks or randomness but a seed's: the same seed is the same run, to the bit.
"""

from .history import History, Operation, Verdict, check

__all__ = ["History", "Operation", "Verdict", "check"]
