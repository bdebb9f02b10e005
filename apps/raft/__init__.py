"""Raft: the protocol as a pure state machine, nodes that run it, and the key-value store replicated on them.

    core/        the protocol: messages and ticks in; messages, log writes and commits out. No clock, no I/O
    node/        core, persistent log, client sessions and a state machine, behind an environment
    transport/   frames between nodes and to clients, over datagrams
    service/     a node on a libos runtime; clients, operators, `corelane run raft-kv` and `raft-resp`
    sim/         a simulated world that tests core and node from seeds

Start reading at core/raft.h, then node/node.h. docs/raft.md is the page for users.
"""
