"""TCP load: thousands of connections with a small TCP of their own, on a queue of any NIC.

    tcpload.h     the rules: what is asked, when, what counts; what this TCP does and does not; the C interface
    tcpload.py    the Python face
    engine.h      the state, and what the files offer each other
    schedule.c    when requests are due, phases, a run from its start to its end
    conn.c        connections: what comes, what leaves
    pattern.c     what every byte must be
    ring.c        memory for queues of connections
    segment.c     frames: segments, resets to strangers, ARP
    attack.c      an attacker beside the client; attackers.c: one with connections of its own
    tcpload.c     life and control, and the three calls of the client's thread: due, generate, receive
    client.c      a thread that makes these calls on a NIC
    nic.c         the client as a NIC, for who polls it

Threads and invariants: as of ../loadgen. Start reading at tcpload.h, then conn.c.
"""
