"""`corelane bench asyncio`: servers on asyncio with their sockets on the dataplane, beside uvloop and the stock loop.

    asyncio.py   the arms and figures; starts here
    loops.py     the event loops that are compared, by name
    server.py    a server in a process of its own, by any of them: TCP echo as protocols and as streams, or uvicorn
    thread.py    our loop on a thread of this process
    places.py    where servers are asked: at the far end of a veth pair each, or on a memory link in this process
    echo.py      what an echo carries, its tail at half of uvloop's peak, and what it takes while it is idle
    web.py       uvicorn with a small ASGI application; alone.py: the same without a network, the floor
    entry.py     the floor: what a message costs the interpreter alone (../baseline/python_entry.c)
    start.py     `corelane up` and a compiled application, from nothing to the first answer

The clients are drivers/nic/tcpload, the one on kernel sockets of ../baseline, and that of ../http.
"""
