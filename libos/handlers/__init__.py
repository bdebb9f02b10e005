"""Request handlers: numba functions, C functions, Python callables, and turning each into what C calls.

    handlers.py        @libos.udp, c_handler: what may be a handler (start here)
    compile.py         a Python function compiled to a C function that runs without the GIL
    kept.py            the same from the disk, without numba
    lint.py            what is found in its code that can make a request slow or fail
    python.py          Python callables, a burst with the GIL taken once
    python_batches.py  Python callables that get a batch at a time
    batching.py        requests that are handled together
    request_types.py   requests in queues by type
    c_functions.py     C functions as Python holds them

The C side: corelane/libos/udp.h, libos/net/handler.c. docs/handlers.md is the page for users.
"""
