"""What numba has to learn for code on uthreads. The name is numba's: inside the tree, `import numba` is the library.

    views.py     the type of `request` and `reply`: a checked view of bytes that neither raises nor allocates
    calls.py     libos calls in compiled code: sleep, locks, send, log append
    streams.py   of them those of TCP and poll sets
    memory.py    numbers at addresses, addresses of views
    atomics.py   atomic operations on elements of arrays
    cache.py     where compiled code is cached: a folder for each build of the C library
    imports.py   what numba imports in vain, and how it does not

Imported only when something is compiled. Start reading at views.py.
"""
