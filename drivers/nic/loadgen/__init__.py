"""The open-loop load generator: a traffic source that is a NIC, or a client thread over one.

    loadgen.h        the rules: when requests are due, what counts as late, lost, wrong; the C interface
    loadgen.py       the Python face: traffic, arrivals, runs
    runs.py          what a run leaves, and what this has in common with other generators
    arrivals.{h,c}   gaps between requests, drawn beforehand
    zipf.{h,c}       ranks of keys, drawn beforehand
    schedule.c       when requests are due, phases of a run
    engine.{h,c}     the state, and the three calls of its thread: due, generate, receive
    echo.c memcached.c preload.c wire.c   what requests say and what answers must say; frames and ARP
    nic.c client.c   the engine as a NIC, and as a thread over a queue of another NIC

Threads: the engine belongs to the one thread that polls it; another thread starts, stops and reads it.
Invariants: latency counts from the intended time; a late request is sent and charged, never skipped; sent = answered +
lost + outstanding. Start reading at loadgen.h, then engine.c.
"""
