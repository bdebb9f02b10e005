"""Ahead of time: handlers and periodic work, compiled by numba, as a shared object for processes without Python.

    work.py      what a service does: its handlers, periodic work and jobs, checked
    baseline.py  for which processors it is compiled
    objects.py   each function as an object file, and all of them linked (start here)
    table.py     the one table that the object exports, and the state

The C side: corelane/libos/service.h, libos/service. docs/compile.md is the page for users.
"""
