"""corelane.bench.load: `corelane load`: open-loop load and latency for any server.

Owns what a measurement of a stranger's server is made of, without root and without an iokernel:

    targets.py      what a URL names
    workloads.py    operation mixes, keys and sizes: YCSB's and Facebook's by their names
    arrivals.py     when requests are due: drawn, or from a file
    custom.py       custom requests and replies, compiled by numba
    dataplane.py    loads over corelane's own stack
    measuring.py    one server under load: points, the client's own share, the machine's canary
    trust.py        why a result is not to be trusted
    searching.py    sweeps, and the highest rate that keeps a limit
    command.py      the order of all that
    reporting.py    the table, and the JSON document
    exporting.py    HdrHistogram log, recorded arrivals, PNG
    page.py         one HTML page with everything in it
    load.py         the benchmark: the tool against servers of known latency

    sockload/       the engine: threads, connections, what carries them, protocols (C)
    reference/      a server of known latency (C)

Its threads are those of the two rooms below it; all else runs in the caller's.
"""
