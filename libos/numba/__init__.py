"""What numba has to learn for code on uthreads. The name is numba's: inside the tree, `import numba` is the library.

    views.py     the type of `request` and `reply`: a checked view of bytes that neither raises nor allocates
    batches.py   the types of `requests`, `replies` and `lengths` of handlers that get many at a time
    calls.py     libos calls in compiled code: sleep, locks, send, log append
    streams.py   of them those of TCP and poll sets
    memory.py    numbers at addresses, addresses of views
    atomics.py   atomic operations on elements of arrays
    exceptions.py  an exception where C counts it: told, and what it has of memory given back
    raises.py    what code may raise and where, and the same in words
    lines.py     which line of Python each instruction is of, for whoever samples where code is
    folder.py    where compiled code is cached: a folder for each build of the C library
    fingerprint.py  under which key: a digest of all that it was made of
    cache.py     what numba asks for code there, and tells to keep
    imports.py   what numba imports in vain, and how it does not

But for folder.py, fingerprint.py, lines.py and raises.py, imported only when something is compiled. Start reading at
views.py.
"""
