"""The ground floor: what every process of corelane stands on. It imports nothing of corelane.

What it owns
    base.h              atomics, cache lines, branch hints: what each C file starts from
    ring.h              descriptor rings between two threads or processes (start reading here)
    pool.h park.h       packet buffer indices; going to sleep without losing a wake-up
    clock.h hist.h      time stamps and their conversion; latency histograms
    memory.h            sealed shared memory files, descriptors over sockets
    shm.h control.h     what iokernel and applications share, and how they come to share it
    trace.h             what a runtime writes down of its requests, and who may read it (trace.py)
    net.h               headers on the wire, checksums, the RSS hash
    errors.py           the one family of exceptions
    closing.py ending.py        what is closed once; what is ended once, by a call or by signals
    topology.py placement.py    the machine's CPUs; which cores to poll on, and why
    options.py config.py        the configuration file (tracing.py: what of it concerns traces)
    files.py memory_files.py printable.py   files as a whole or not at all; memory files, and text, of other programs
    layout.py dtypes.py         numpy's view of C structs; dtypes whose elements C may copy
    clock.py hist.py memory.py  Python faces of the C above

Threads
    None of its own. Each object says which thread may call what; rings and parkers are what other threads meet at.

Invariants
    - What is shared between processes is declared in shm.h and control.h and nowhere else, with its writer, readers and
      order; tests/runtime/test_layout.py holds C, cffi, numpy and the library's debug information together.
    - A word read from shared memory is copied once and checked. A peer that lies costs itself, nobody else.
    - No C function here aborts, prints or logs. Errors are -errno, with a reason in `char err[256]` where one helps.
    - Nothing on a hot path (what is `static inline` or marked CL_HOT) allocates, locks or enters the kernel, but for
      waking a sleeper and the pool's depot, which say so.
    - Importing this package loads neither numpy nor numba, nor the C library: submodules do when they need it.

docs/runtime.md is the same for users: how the pieces are used from C and from Python.
"""
