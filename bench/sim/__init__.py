"""corelane.bench.sim: the scheduler's world in a discrete-event simulator, for more cores than the machine has.

    model.py     what a simulation is made of: applications, distributions, costs, results
    engine.py    the event loop, compiled by numba; calls the very policies that the iokernel calls
    queues.py    a line of requests for each core of an application; steering and stealing
    state.py, waits.py
                 its arrays; what requests wait for and where the cores' time goes
    draws.py, calls.py
                 its randomness; its calls of the iokernel's functions
    formulas.py  queueing theory to check it by, and an index of fairness
    recursion.py the same queue without events, from the same draws: takes the sampling error out of that check
    plain.py     that check without it, at a load at which some millions of requests suffice
    recorded.py  a recorded load, for the simulator and for the machine
    box.py       the same requests through the simulator and through this machine's cores
    managed.py, managed_check.py
                 the same through the simulator and through an iokernel that moves this machine's cores
    agreement.py how far the two are apart
    sampling.py  how long a point of a study is simulated: until its p99.9 is known, or its events are spent
    studies.py   the questions asked of it: policies against load and cores
    interval.py  another: cores needed against the time between decisions, under steady and shifting load
    preemption.py, quantum.py
                 preempted requests against closed forms; what the quantum and the cost of a preemption do to the tail
    plots.py     the benchmark's plot

As a benchmark (`corelane bench sim`) it checks itself against Erlang-C, Pollaczek-Khinchine and the machine at one and
two cores, measures its own speed and draws the studies.

Does not deal with: caches, NUMA, contention between hyper-threads, packets that are lost and sent again. What a move or
a packet costs is a parameter, to be taken from `corelane bench` on the machine in question.
"""
