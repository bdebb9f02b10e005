"""kv: a key-value store of bounded memory that speaks memcached's protocols over TCP and UDP.

What is where (start reading at store.h):
  store.h      the store: what it promises, its memory, its concurrency      layout.h  structures and the read side
  store.c      making and describing it     index.c  buckets     log.c  the circular log     ops.c  operations
  check.c      the invariants, walked       hash.h   keyed hash  number.h  decimal numbers
  command.h    memcached's commands over byte buffers, whichever transport they came by
  command.c    parsing and storing          retrieve.c  get and its kin      stats.c  the stats command
  watch.h      events for who watches        front.h    what stats says of servers
  udp.h udp.c  datagrams, and the burst handler      ahead.h  looking ahead over a burst
  stream/      connections: conn.h (bytes in, bytes out), front.h (who is connected), tcp.c, local.c (Unix socket)
  flags.py     memcached's command line
  store.py     the store from Python

Threads: each kthread works through its own cl_kv_thread, cl_kv_udp and kv_side; the Unix socket has a thread of its
own, and a cl_kv_thread. The store's partitions have a lock for writers, readers take none.
"""

from .store import Session, Store

__all__ = ["Session", "Store"]
