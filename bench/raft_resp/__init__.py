"""`corelane bench raft_resp`: SETs that three nodes hold, beside Redis with its append-only file, and beside etcd.

raft_resp.py   the benchmark: start here
client.py      stock redis-benchmark as the client of ours and of Redis
"""
