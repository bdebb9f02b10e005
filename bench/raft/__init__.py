"""`corelane bench raft`: a replicated put, beside libraft and etcd, and the floors under it.

raft.py arms.py judge.py   the benchmark, one slot of each arm, and what slots come to: start at raft.py
lone.py turns.py   one client's durable puts in short turns
nodes.py udp.py    nodes in processes of their own (bench/raft_fail.py uses them too); 64 ordinary clients
batches.py batches.{h,c}   when batches go, in virtual time, beside fixed settings
bound.{h,c} floor.{h,c} relay.{h,c}   the floors: writes and packets without protocol, log or store
"""
