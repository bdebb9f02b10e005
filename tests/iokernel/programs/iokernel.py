"""An iokernel on the socket path of argv[1], until it is killed."""

import signal
import sys

from corelane.iokernel import Iokernel

with Iokernel(sys.argv[1]):
    print("ready", flush=True)
    signal.pause()
