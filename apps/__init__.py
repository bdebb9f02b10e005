"""Applications that stand on libos, each usable by itself. `corelane run NAME` starts one.

    registry.py   applications by name, and what one has to offer
    echo          every datagram goes back as it came: what it costs is what corelane costs
    spin          a server with synthetic service times
    batch         numeric work on every core that is left over
    kv/           a key-value store that speaks memcached's protocol
    raft/         a replicated log, and the store on it

Threads: those of the runtime that an application is set up on. Start reading at registry.py, then echo.py.
"""
