"""AF_XDP: queues of a real or virtual interface, taken from Linux by an XDP program.

    af_xdp.py        the NIC: finds queues, loads the XDP program (drivers/bpf/steer.py), opens the sockets
    af_xdp.{h,c}     the data path: one socket a queue, one UMEM, one buffer pool
    xsk.{h,c}        AF_XDP sockets: UMEM, the four rings, binding, the doorbell
    given.c          a NIC for an XDP program that an earlier program has attached (`hand_over`)
    check.c          what is checked of configuration and interface before anything is opened

Threads: none. Queue k has one user at a time. Invariant: each buffer of the UMEM is in the pool, in a kernel ring, or
lent, and in one of them only. Start reading at af_xdp.h; docs/af_xdp.md is the page for users.
"""
