"""The key-value store over UDP, and its floor.

kv.py     the benchmark
lines.*   a server that touches the cache lines of a GET and does nothing else
"""
