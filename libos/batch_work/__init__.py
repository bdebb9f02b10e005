"""Batch work: functions that run for long on what cores are left over, and cede a core within microseconds.

    work.py            @libos.batch, jobs, Runtime.batch: start here
    compile.py         a numba compiler that puts probes into the final module
    probes.py strips.py outline.py unroll.py   which loops get which probes, and how inner loops stay vectorised
    ir.py loops.py steady.py polls.py cost.py fuel.py refill.py   LLVM's text as data: loops, costs, how often to poll
    refuse.py          what compiled code may not do on a uthread
    frame.py call.{h,c}   arguments and results of a job; calls of a language's run-time as batch work
    thread_pools.py    threads of numerical libraries, where an iokernel has the cores

Threads: a job is a uthread. Importing this costs no numba before the first compilation.
docs/probes.md is the page for users.
"""
