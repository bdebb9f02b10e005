"""A job that computes on one CPU for ever: `spin.py CPU`."""

import os
import sys

os.sched_setaffinity(0, {int(sys.argv[1])})
print("ready", flush=True)
while True:
    pass
