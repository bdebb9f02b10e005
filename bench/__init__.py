"""corelane.bench: one measuring harness, and one file a benchmark.

What this package owns
    harness/       the rules of measuring: sessions, interleaved arms, canary, open-loop search, documents, plots
    goals.py       every figure's name, goal and sense, once
    registry.py    finds the benchmarks; importing it imports none of them
    NAME.py        benchmark NAME: `corelane bench NAME`
    canary.c, cacheline.c
                   the C parts: gaps seen by spinning threads, and the round trip of a cache line between two cores

What a benchmark is
    A module bench/NAME.py with

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

Where to start reading: harness/session.py, then echo.py.
"""
