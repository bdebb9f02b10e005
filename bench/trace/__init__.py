"""`corelane bench trace`: what it costs to write down what becomes of requests.

trace.py    the benchmark: start here
right.py    whether the stage that was delayed is blamed (delays.c: the server that is delayed, in virtual time)
"""
