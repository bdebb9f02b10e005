"""An iokernel on the socket path of argv[1], in polling mode argv[2], until it is killed."""

import signal
import sys

from corelane.iokernel import Iokernel

with Iokernel(sys.argv[1], mode=sys.argv[2] if len(sys.argv) > 2 else "adaptive"):
    print("ready", flush=True)
    signal.pause()
