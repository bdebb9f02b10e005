"""Upper case by plain Python, which may use anything that does not block: python examples/python_upper.py [socket]"""

import sys

from corelane import libos


@libos.udp(port=9000, compiled=False)
def upper(request: memoryview) -> bytes:
    if libos.current_request().from_server:  # two of us would answer each other for ever
        return b""
    address, _port = libos.current_request().peer
    return f"{address} said {str(request, 'utf-8', 'replace').upper()}".encode()


if __name__ == "__main__":
    socket = sys.argv[1] if len(sys.argv) > 1 else "/run/corelane.sock"
    libos.Runtime(socket, name="python-upper").serve(upper)
