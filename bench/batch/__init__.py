"""`corelane bench batch`: a service that gains from batches, under a limit.

batch.py    the benchmark: start here
model.py    the service: a small dense network, compiled by numba
loads.py    when requests come: at a steady rate, and in bursts
serving.py  the service behind an iokernel, and what became of a load under a rule
rules.py    how requests wait: one at a time, fixed batches, the policy
"""
