"""A Raft node on a libos runtime, and those who talk to it.

    serve.{h,c}    the node over UDP: making one, peers, clients; internal.h: the structure that the C files share
    resp.c         Redis' protocols over TCP, executed ahead by the node that leads
    kv.c stream.c  memcached's protocol over UDP, over TCP. admin.c: what operators ask
    traced.c       what commands waited for, into the runtime's trace
    poll.c         the node's turn: clock, channels, the log's device. The others stand on it
    service.py     the same from Python: `serve(...)`, the store or a state machine of yours
    settings.py    what all nodes of a group have in common; where a node's log is
    logs.py        where a node's log lies: a file, or a storage area
    client.py      a client over ordinary sockets
    operate.py     what operators ask of a group: `corelane raft`
    app.py         `corelane run raft-kv`
    resp_app.py    `corelane run raft-resp`

Threads: the node belongs to one kthread. Start reading at serve.h; in Python at service.py.
"""
