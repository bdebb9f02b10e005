"""A hostile application: attaches to argv[1] as argv[2] and writes random bytes (seed argv[3]) over its whole arena,
header, rings and all, again and again, ringing the doorbell, until it is killed."""

import fcntl
import mmap
import os
import random
import sys

from corelane.drivers._native import ffi, lib

err, accept, fds = ffi.new("char[256]"), ffi.new("struct cl_control_accept *"), ffi.new("int[3]")
hello = ffi.new("struct cl_control_hello *", {"n_kthreads": 2, "n_rx": 64, "n_tx": 64, "rx_slots": 64, "tx_slots": 64})
ffi.memmove(hello.name, sys.argv[2].encode(), len(sys.argv[2]))
sock = lib.cl_control_connect(sys.argv[1].encode(), 5000, err)
assert sock >= 0, ffi.string(err)
assert lib.cl_control_attach(sock, hello, accept, fds, 5000, err) == 0, ffi.string(err)
arena = mmap.mmap(fds[0], accept.layout.total_bytes)

# What a hostile application may try with its descriptors. None of it may succeed where it would hurt.
for fd in (fds[0], fds[1]):
    for size in (0, 1 << 30):
        try:
            os.ftruncate(fd, size)
            raise SystemExit("an arena could be resized")
        except OSError:
            pass
try:
    mmap.mmap(fds[1], 4096)
    raise SystemExit("the state segment could be mapped writable")
except OSError:
    pass
fcntl.fcntl(fds[2], fcntl.F_SETFL, 0)  # the doorbell blocks from now on
print("ready", flush=True)

rng = random.Random(int(sys.argv[3]))
rings = (accept.layout.lines_offset, accept.layout.buffers_offset)
while True:
    arena[:] = rng.randbytes(len(arena))
    for _ in range(2000):  # the rings more often: there every byte counts
        at = rng.randrange(*rings)
        arena[at : at + 16] = rng.randbytes(16)
        if rng.random() < 0.01:
            os.eventfd_write(fds[2], 1)
