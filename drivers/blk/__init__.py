"""Block devices: what every driver implements (corelane/drivers/blk.h), and the drivers.

    blk.c blk.py        calls through the vtable; the Python face `Blk`
    memory.{c,h}        memory as a device
    file.c create.c file.py   files and raw disks: opening, what the file system and the disk can do, making files
    engine.{h,c} uring*.{c,h} threads.c   the two engines of the file device: io_uring, or worker threads
    fault.{h,c} fault_end.c cache.{h,c}   a bad disk: lost and torn writes, errors, bit rot, power cuts, from a seed
    below.{h,c}         whether direct I/O gets through to the disk below loop devices and overlays
    loop.py area.py     loop devices; a storage area of an iokernel as a device

Threads: none, but for the workers of threads.c. A queue has one user at a time.
Invariant: what was reported durable survives the power. Start reading at include/corelane/drivers/blk.h, then memory.c.
"""
