"""corelane.bench.published: policies held against exact answers, and against what their papers claim.

published.py     the benchmark
brute_force.py   planners and packers beside exact ones, on small random cases
claims.py        what papers claim, run again; claim_loads.py: on loads like theirs
together.py      all policies on the same jobs
scaling.py       on how many simulated cores each policy ends, and why: docs/lab-scaling.md
serving.py       requests that are served in batches by a plan of sessions and cycles: Nexus
"""
