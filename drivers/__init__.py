"""Devices behind two small vtables: NICs and block devices.

    nic/     NICs: the vtable's Python face, memory, fault, pcap; af_xdp/, tap/, link/, loadgen/, tcpload/ are
             rooms of their own
    port/    one more NIC: an application's end of an iokernel's arena
    blk/     block devices: memory, file (io_uring or threads), fault, loop devices
    bpf/     eBPF without clang: the XDP program that feeds AF_XDP sockets
    linux/   what Linux says of network interfaces and what is set there: namespaces, offloads, link state
    device.py   a Python object that owns one C device, and closes it once
    random.h    seeded random numbers for drawn tables and faults

The contracts are public headers: corelane/drivers/nic.h (ownership of frames, queues, sleeping, counting) and
corelane/drivers/blk.h (requests, durability, what a crash may leave).

Threads: a driver starts none, but for the load generator's client thread, a port's watcher, and a file's workers where
there is no io_uring. A queue has one user at a time.
Invariants: whoever holds a frame owns its buffer. Every frame is delivered or counted as dropped, by reason. With all
frames returned, `buffers_free` is all of them.

Start reading at include/corelane/drivers/nic.h, then nic/memory.c, the shortest complete driver.
"""
