"""What the laboratory's policies share: functions for numba that read the tables of a policy, or rows of its `memory`.

    tool.py       how they are compiled
    ranking.py    list scheduling: jobs by a key, cores by a target, and what has to be taken and given for it
    attained.py   attained service: queues of levels, the Gittins index of what is left
    trace.py      what jobs of a kind did before: how long they took, how they scaled
    gain.py       marginal gain: one core after the other to the job whose time falls most
    shares.py     deadlines: the least share with which a job is done in time, filled in one after the other
    places.py     seats of a logical core, cores of a loop: where a job begins, and moves to
    packing.py    bin packing: of demands into loops, of batches into cores ("squishy")
    bandit.py     arms of unknown cost, by Thompson sampling
    slack.py      stages of a pipeline: how slow one may be before the others wait for it

A planner works on rows of numbers in `memory`, so that brute_force.py runs the same code beside an exact one. Words 6
and 7 of `jobs[j].memory` are ranking.py's in each policy that uses it.

No function allocates or raises: a policy that calls them may run wherever a policy runs.
"""
