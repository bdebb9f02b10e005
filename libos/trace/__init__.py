"""What became of requests: kthreads write it down (trace.h, trace.c), and what the records say (stages.py, blame.py).

README.md is the page of the C part. The Python part takes records that a reader has (runtime/trace.py) and gives
numbers and lines, without I/O:

    stages.py   records as times of stages
    behind.py   requests that wait behind a long one: whose fault that is
    systemcalls.py  those that handlers made, as stages
    blame.py    which stage makes the tail of a service
    pieces.py   records of several readings
    slo.py      whether requests break a limit of latency

and keeps on disk what is around such a moment:

    recorder.py the thread of a runtime that does
    kept.py     the files

collects.py tells C of the interpreter's collections of garbage.
"""
