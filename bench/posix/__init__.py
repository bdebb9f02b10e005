"""Stock servers by `corelane run --posix` beside themselves on Linux' sockets: what they carry, their tails, and what
the preloaded library costs those who do not need it.

    posix.py     the arms and figures; starts here
    servers.py   memcached, redis-server and nginx, on Linux and on the dataplane, with the client for both
    foreign.py   a wrapped call on a descriptor of Linux (../baseline/foreign_calls.c)
"""
