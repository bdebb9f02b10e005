"""`corelane bench resp_durable`: durable SETs beside stock redis-server with `appendonly yes`, `appendfsync always`.

resp_durable.py   the benchmark: start here
servers.py        both servers behind one veth pair, with their logs in one folder of a disk
"""
