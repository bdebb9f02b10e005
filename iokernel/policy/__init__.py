"""Where a core-allocation policy is called from, and what bounds one that is not built in.

    policy.c          policies by name; what is cut from grants that are too many (contract: corelane/iokernel/policy.h)
    policy.py         policies by name from Python, with settings by name and unit; installing one in a running iokernel
    host.{h,c}        the place in the loop that calls the policy, swaps it, and times it
    guard.{h,c}       a policy that is not trusted: called on a copy between guard pages, with a way out
    trial.{h,c,py} candidate.py   tried on of generated tables, in a process of its own, before it is installed
    verdict.py        what a policy did that is refused, in words
    numba.py shared_object.py modules.py   policies from a Python function, a .so, a module as its file is now

Threads: host.c is the loop's; the rest is the control thread's. The policies themselves are in ../policies.
Start reading at include/corelane/iokernel/policy.h; docs/policies.md is the page for users.
"""
