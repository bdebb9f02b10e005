"""Raft: the protocol as a pure state machine, and nodes that run it.

raft.h        the core's contract: messages and ticks in; messages, log writes and commits out
core.py       the same from Python, for tests and tools
sim           the simulated world that tests it
"""
