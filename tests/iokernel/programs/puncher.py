"""A hostile application: attaches to argv[1] as argv[2] and has the kernel take away the pages of its arena, behind the
first one, again and again, ringing the doorbell, until it is killed."""

import ctypes
import os
import sys

from corelane.drivers._native import ffi, lib

KEEP_SIZE, PUNCH_HOLE = 1, 2  # linux/falloc.h
PAGE = 4096

err, accept, fds = ffi.new("char[256]"), ffi.new("struct cl_control_accept *"), ffi.new("int[3]")
hello = ffi.new("struct cl_control_hello *", {"n_kthreads": 2, "n_rx": 64, "n_tx": 64, "rx_slots": 64, "tx_slots": 64})
ffi.memmove(hello.name, sys.argv[2].encode(), len(sys.argv[2]))
sock = lib.cl_control_connect(sys.argv[1].encode(), 5000, err)
assert sock >= 0, ffi.string(err)
assert lib.cl_control_attach(sock, hello, accept, fds, 5000, err) == 0, ffi.string(err)
fallocate = ctypes.CDLL(None, use_errno=True).fallocate
fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
print("ready", flush=True)
while fallocate(fds[0], KEEP_SIZE | PUNCH_HOLE, PAGE, accept.layout.total_bytes - PAGE) == 0:
    os.eventfd_write(fds[2], 1)
raise SystemExit(f"no hole could be made: {os.strerror(ctypes.get_errno())}")
