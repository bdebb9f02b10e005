"""The `port` NIC: an application's end of an iokernel's arena. To libos an iokernel is one more NIC.

    port.h        the contract: rings, doorbell, what happens when the iokernel dies
    port.c        the data path
    arena.c       the arenas of a port, one an attachment, kept while frames of them are out
    watch.c       making a port, attaching, watching the iokernel, attaching again, closing
    cores.c view.c   the words by which cores move: at addresses that outlive an attachment
    port.py       the Python face

Threads: queue k's receive side and its send side have one user each; one watcher thread a port touches no queue.
Invariant: a frame of a former arena stays readable until it is given back. Start reading at port.h.
"""
