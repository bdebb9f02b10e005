"""The simulated world of Raft clusters: from one seed, clocks, a network, disks, crashes and clients.

What is where (start reading at world.h):
  run.h                what a run takes and gives        world.py   from Python: many seeds, on several threads
  world.h world.c      the cluster on its virtual clock; which file has what
  history.h history.c  whether a client history is linearizable; used on real clusters, too     history.py  from Python
  queue.h queue.c      events in order of virtual time, clocks that drift
  network.h network.c  which datagrams arrive, and when
  disk.h disk.c        stable storage as the core alone sees it: what is durable, what is under way
  machine.h machine.c  the state machine of simulated replicas
  real_resp.h ...      typed values and a port of RESP, in worlds whose clients speak it (resp_client.c)

Everything is single-threaded C without clocks or randomness but a seed's: the same seed is the same run, to the bit.
"""

from .history import History, Operation, Verdict, check
from .world import Result, run, run_many

__all__ = ["History", "Operation", "Result", "Verdict", "check", "run", "run_many"]
