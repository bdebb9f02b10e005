"""Raft: the protocol as a pure state machine, nodes that run it, and the key-value store replicated on them.

raft.h        the core's contract: messages and ticks in; messages, log writes and commits out
node.h        core, persistent log, client sessions and a state machine behind an environment
serve.h       a node on a libos runtime: peers and clients over UDP
core.py node.py service.py   the same from Python; app.py: `corelane run raft-kv`
logs.py       where a node's log lies: a file, or a storage area
client.py     a client over ordinary sockets
sim           the simulated world that tests it
"""
