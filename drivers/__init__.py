"""Devices behind one small vtable.

Owns every NIC: `memory` (software link inside a process), `loadgen` (open-loop traffic source), `af_xdp`, `tap`,
`port` (an application's end of the iokernel's switch), and `fault` and `pcap`, which wrap any other. A NIC is a
`struct cl_nic` (nic.h: the contract of ownership, queues, sleeping and counting) with the Python face `nic.Nic`.
And every block device: `memory`, `file` (files and raw disks, by io_uring or threads) and `fault`; a `struct cl_blk`
(blk.h: requests, durability, what a crash may leave) with the Python face `blk.Blk`.

Threads: a driver starts none, but for the load generator's client thread and a file's workers where there is no
io_uring. A queue has one user at a time.
Invariants: whoever holds a frame owns its buffer; every frame is delivered or counted as dropped, by reason; with all
frames returned, `buffers_free` is all of them. Start reading at nic.h, then memory.c, the shortest complete driver.
"""
