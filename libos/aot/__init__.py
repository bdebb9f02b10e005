"""Ahead of time: handlers and periodic work, compiled by numba, as a shared object for processes without Python.

    work.py      what a service does: its handlers and periodic work, checked
    baseline.py  for which processors it is compiled
    objects.py   each function as an object file (start here)
    needs.py     what that code needs of others: given, or refused with the user's line
    table.py     the one table that the object exports, and the state
    link.py      the shared object

The C side: corelane/libos/service.h, libos/service. docs/compile.md is the page for users.
"""
