"""`corelane bench kv_tcp`: the key-value store over TCP beside stock memcached and redis-server.

kv_tcp.py    the benchmark: start here
scripts.py   what is asked and what must be answered, of memcached's protocol and of Redis'
servers.py   ours on a memory link and over AF_XDP; memcached and redis-server on Linux' TCP
kinds.py     SETs, many connections, long values
items.py     memory per item

The client of all arms is drivers/nic/tcpload with a script: it compares every byte.
"""
