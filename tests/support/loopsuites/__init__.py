"""Published tests of event loops, run with any loop: CPython's own of asyncio, and uvloop's, as far as they apply.

    PYTHONPATH=tests/support python -m loopsuites --loop corelane.libos.asyncio:new_event_loop

Neither is in the repository. `suites` says where they are had, `interpreters` what runs them, `replace` puts the loop
in the place of asyncio's, `child` runs one module of tests in a process of its own, `runner` looks after that process,
`skips` reads the lists of what is not expected to pass, and `report` compares with a run on stock asyncio and counts.
`wire` is the arrangement in which the loop is at one end of a wire and Linux at the other. Start at `report.compare`.
"""
