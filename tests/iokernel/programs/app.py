"""An application: attaches to argv[1] as argv[2] and sends back every frame to its sender, until it is killed."""

import sys

from corelane.drivers.port.port import open_port

with open_port(sys.argv[1], name=sys.argv[2]) as port:
    print("ready", flush=True)
    while True:
        back = [f[6:12] + f[0:6] + f[12:26] + f[30:34] + f[26:30] + f[34:] for f in port.recv(timeout_s=1.0)]
        sent = 0
        while sent < len(back):
            sent += port.send(back[sent:])
