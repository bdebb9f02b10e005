"""corelane.bench.lab: a laboratory for policies: jobs that come, have phases and end, on cores of unequal speed.

    README.md    the interface of loads and of policies: start there
    table.py     the rows that a policy sees, and those that it does not
    acts.py      what a policy does and asks: functions for its body
    policies/    policies by name, one a file
    policy.py    a policy by name; entry.py: compiled to the C function that the engine calls, checked, kept on disk
    loads.py     a load: jobs and their kinds; its file
    world.py     a run: cores, costs, a load, a policy; what became of each job
    engine.py    the event loop, compiled by numba
    generators.py, measures.py
                 loads from seeds; what a run comes to
    runs.py, child.py, comparing.py, plots.py
                 many runs in processes; a document of them; its plot. The command is cli/lab.py
    theory.py, invariants.py, watch.py
                 the engine against formulas; policies against what they say that they hold
    box.py, boxloop.py
                 the same load and policy on this machine's cores
    boxed.py, served.py, recorded.py
                 how far both are apart, on loads generated and recorded; a load from a service, from what was seen
    doorbell.py, needs.h, needs.c
                 the time from need to core on this machine, by the doorbell and by the scan
    lab.py, studies.py
                 the benchmark
    rates.py, riders.py, lists.py, state.py, calls.py
                 how fast a job goes; batches; the lists in the tables; the loop's arrays; the call of a policy

It stands beside `bench/sim`, which has requests of applications that never end, as the iokernel sees them. Here a job
has an amount of work, may use several cores, and has resources besides. It uses that room's winner tree. No floor
imports it.

Does not deal with: caches, NUMA, what a job's own threads do inside, machines beside this one.
"""
