"""A Raft node: the core, its log, client sessions and a state machine, on a network and a clock that it is given.

    node.h node.c      the contract; making a node, its loop, frames that come in: start here
    client.c forward.c frame.{h,c}   what clients ask; passing it to the leader; frames besides the core's
    answer.c tick.c    answers to all who asked, and stopping; time that goes by, and who leads by then
    session.{h,c}      exactly once: which command of each client was applied last
    disk.{h,c} save.c recover.c room.c   log writes, durable snapshots, starting from a log, room in it
    snapshot.c compact.c   what a snapshot holds; when one is taken
    first.c settings.c     the voters that a group began with; what else has to be the same on every node
    known.c incarnations.c        the incarnations that a node knows; nodes with amnesia
    stages.{h,c}       when commands reached which stage, for who traces them
    clock.c round.c in_call.{h,c} chooser.{h,c}   the log's clock; when a batch goes; waiting for the disk
    kv_machine.{h,c}   the key-value store as a state machine; machine.py: one in Python
    resp_machine.{h,c} ahead.{h,c}   typed values as one; RESP's commands executed ahead of the log
    internal.h         the structure that these files share
    node.py            a node from Python, for tests

One thread at a time. The same code runs in the simulation and over UDP.
"""
