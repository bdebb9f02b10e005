"""corelane.bench.load.sockload: the engine of `corelane load`: open-loop load on kernel sockets, for any server.

Owns the threads of load: each has its connections, its share of the rate and its random numbers, and spins before
intended send times. sockload.h states the rules, and where to start reading; sockload.py is Python's side of it.
"""
