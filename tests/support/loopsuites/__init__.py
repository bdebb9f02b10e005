"""Published tests of event loops, run with any loop: CPython's own of asyncio, and uvloop's, as far as they apply.

    PYTHONPATH=tests/support python -m loopsuites --loop corelane.libos.asyncio:new_event_loop

Neither is in the repository. `suites` says where they are had, `replace` puts the loop in the place of asyncio's,
`child` runs one module of tests in a process of its own, `runner` looks after that process, `skips` reads the lists of
what is not expected to pass, and `report` compares with a run on stock asyncio and counts. Start at `report.compare`.
"""
