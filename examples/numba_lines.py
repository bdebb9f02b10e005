"""Lines over TCP, each answered in upper case by compiled code: python examples/numba_lines.py [/run/corelane.sock]"""

import sys

from corelane import libos

NEWLINE, A, Z, TO_UPPER = 10, 97, 122, 32


@libos.tcp(port=7000)
def lines(data, reply):  # type: ignore[no-untyped-def]
    for end in range(min(len(data), len(reply))):
        byte = data[end]
        reply[end] = byte - TO_UPPER if A <= byte <= Z else byte
        if byte == NEWLINE:
            return end + 1, end + 1  # bytes taken, bytes answered
    if len(data) >= len(reply):
        return -1, 0  # a line that long gets no answer: the connection is closed
    return 0, 0  # a part of a line: called again when more has come


if __name__ == "__main__":
    socket = sys.argv[1] if len(sys.argv) > 1 else "/run/corelane.sock"
    libos.Runtime(socket, name="numba-lines", kthreads=2).serve(lines)
