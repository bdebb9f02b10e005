"""Raft: the protocol as a pure state machine, and nodes that run it.

raft.h        the core's contract: messages and ticks in; messages, log writes and commits out
node.h        core, persistent log, client sessions and a state machine behind an environment
core.py       the core from Python, for tests and tools
node.py       a node from Python, with a state machine in Python
sim           the simulated world that tests it
"""
