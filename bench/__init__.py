"""corelane.bench: one measuring harness, and one file a benchmark.

What this package owns
    harness/       the rules of measuring: sessions, interleaved arms, canary, open-loop search, documents, plots;
                   goals.py has every figure's name, goal and sense, once
    baseline/      what is compared with: Linux servers, memcached, etcd, libraft
    tenant/        applications that share a core, each in a process of its own
    sim/           the discrete-event simulator of cores that serve requests
    lab/           the same for jobs, and policies for them
    load/          corelane load
    packetdrill/   scripts of packets in and out, for tests of TCP; no benchmark
    registry.py    finds the benchmarks; importing it imports none of them
    NAME.py        benchmark NAME: `corelane bench NAME`; NAME/NAME.py if it has more files

What a benchmark is
    A module bench/NAME.py, or bench/NAME/NAME.py, with

        SUMMARY = "one line for corelane bench --list"
        FIGURES = ("name.figure", ...)             # declared in goals.py; each one set or excused by run()
        def add_arguments(parser): ...             # optional: its own options
        def run(session): ...                      # measures; see harness/session.py
        def plot(document) -> Canvas: ...          # optional; see harness/plot.py. Default: curves or bars of the arms
        def report(document) -> str: ...           # optional; the text. Default: harness/table.py
        def closing(document) -> str: ...          # optional; the very last line

Invariants
    Load is open loop and latency counts from the intended time. Arms are interleaved. The power setting is the same for
    every arm. Every declared figure is in the document, with a value or with the reason why there is none. Every run is
    bounded by --seconds.

Where to start reading: harness/session.py, then echo/echo.py.
"""
