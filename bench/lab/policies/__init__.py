"""Policies of the laboratory, one a file: NAME.py with a function NAME and these constants.

    SOURCE   where the policy was published, and which part of it this is
    SWEEP    range of each of its settings for a sweep: {"setting": (values, ...)}
    TICKS    True: it is called at intervals only, as by a scan; else at every event, too
    HOLDS    what it says that it holds, which ../invariants.py checks: {"promises": True, ...}
    WORDS    words of `memory` that it needs: (fixed, for each job that may be there, for each core, for each kind)

../README.md is the interface. Nothing registers a policy but its file.
"""
