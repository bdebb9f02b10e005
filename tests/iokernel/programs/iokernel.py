"""An iokernel on the socket path of argv[1], in polling mode argv[2], until it is killed. argv[3]: a worker CPU, whose
core it moves between applications."""

import signal
import sys

from corelane.iokernel import Iokernel

options = {"worker_cpus": [int(sys.argv[3])], "policy": "delay"} if len(sys.argv) > 3 else {}
with Iokernel(sys.argv[1], poll=sys.argv[2] if len(sys.argv) > 2 else "adaptive", **options):
    print("ready", flush=True)
    signal.pause()
