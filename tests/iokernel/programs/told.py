"""An application of the iokernel on the socket path of argv[1] by the name argv[2]. It prints what it is told of."""

import signal
import sys

from corelane import libos

with libos.Runtime(sys.argv[1], name=sys.argv[2], on_event=lambda *event: print(*event, flush=True)) as runtime:
    runtime.start()
    print("ready", flush=True)
    signal.pause()
