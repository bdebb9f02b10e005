"""A hostile application: attaches to argv[1] as argv[2], maps the state segment as anybody may, and moves whoever
sleeps on a grant there to a futex of its own, where nobody wakes anybody, again and again until it is killed. Prints
"moved" when it has moved the first."""

import ctypes
import mmap
import os
import struct
import sys
import time

from corelane.drivers._native import ffi, lib

SLOTS, SLOT_BYTES = 8, 128  # kthreads looked at; struct cl_state_kthread
KTHREADS_AT = 64  # of the offset of the first in struct cl_state_header
SYS_FUTEX = {"x86_64": 202, "aarch64": 98}[os.uname().machine]
FUTEX_REQUEUE = 3

err, accept, fds = ffi.new("char[256]"), ffi.new("struct cl_control_accept *"), ffi.new("int[3]")
hello = ffi.new("struct cl_control_hello *", {"n_kthreads": 1, "n_rx": 64, "n_tx": 64, "rx_slots": 64, "tx_slots": 64})
ffi.memmove(hello.name, sys.argv[2].encode(), len(sys.argv[2]))
sock = lib.cl_control_connect(sys.argv[1].encode(), 5000, err)
assert sock >= 0, ffi.string(err)
assert lib.cl_control_attach(sock, hello, accept, fds, 5000, err) == 0, ffi.string(err)

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.syscall.restype = ctypes.c_long
size = os.fstat(fds[1]).st_size
state = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fds[1], 0)
own = libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, -1, 0)
assert ctypes.c_void_p(-1).value not in (state, own)
(kthreads,) = struct.unpack("<Q", ctypes.string_at(state + KTHREADS_AT, 8))
print("ready", flush=True)

moved = 0
while True:
    for slot in range(SLOTS):
        at = ctypes.c_void_p(state + kthreads + SLOT_BYTES * slot)
        n = libc.syscall(
            SYS_FUTEX, at, FUTEX_REQUEUE, 0, ctypes.c_long(1 << 30), ctypes.c_void_p(own), ctypes.c_long(0)
        )
        assert n >= 0, os.strerror(ctypes.get_errno())
        if n and not moved:
            print("moved", flush=True)
        moved += n
    time.sleep(0.001)
