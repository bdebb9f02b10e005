"""corelane.bench.harness.report: what was measured, as one HTML page that needs nothing beside it.

    markup.py     elements and tables of HTML, everything escaped
    drawn.py      a plot: what a browser draws of it, its legend, its numbers as a table
    page.py       the frame of a page: landmarks, contents, style, script, what it may load (nothing)
    documents.py  the page of benchmarks' documents: what fell short and why, figures, then each benchmark
    style.css     colours for light and dark, widths from a phone's on
    plots.js      draws plots at the width that there is; zoom by mouse and keys, series on and off

Invariants
    A page asks no server for anything: its policy (Content-Security-Policy) forbids it, and so does a test in a
    browser. Each plot passes the lint of harness/lint.py before it is in a page. What is drawn is also there as a
    table, so nothing is lost without a script, on paper, or to who does not see.

Why a script of our own: a library that draws on a canvas says nothing to a screen reader and does not follow the
reader's colours (uPlot); one that draws SVG from any data brings megabytes to each page (plotly: 4). Two axes, curves,
bars and a zoom are some hundred lines.

Where to start reading: page.py.
"""
