"""Compiled code as object files: for a cache on disk, and for processes without Python.

    emit.py   a compiled entry point as an object file. Start here.
    needs.py  what that code needs of others: given, or lacking
    link.py   a shared object of object files

Who uses it: libos/handlers/kept.py, libos/aot.
"""
