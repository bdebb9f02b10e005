"""The Raft consensus core: a pure, deterministic state machine.

    raft.h          the contract and the driver's loop: start here
    core.c ready.c  messages and ticks in; what there is to do out
    election.c      timeouts, pre-vote, votes
    membership.c    joint consensus, majorities
    replicate.c follow.c pace.c   a leader's entries to the others, a follower's side, which go first
    read.c          linearizable reads: read index and leases
    snapshot.c log.c status.c     compaction and chunks; entries in memory; counters
    wire.{h,c} bytes.h            messages as bytes
    internal.h      the structure that these files share: one state machine in several files
    core.py orders.py   the core from Python, for tests and tools; why a node refuses an order

One thread at a time. No clock, no randomness but its seed.
"""
