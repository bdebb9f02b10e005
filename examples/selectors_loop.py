"""A runtime inside an event loop that is yours: python examples/selectors_loop.py [socket]

The loop is a plain `selectors` loop. It serves UDP by the runtime, and whatever else has a descriptor: here a socket of
the kernel's, on which it tells how many requests there were.
"""

import selectors
import signal
import socket
import sys

from corelane import libos


@libos.udp(port=9000, compiled=False)
def upper(request: memoryview) -> bytes:
    if libos.current_request().from_server:  # two of us would answer each other for ever
        return b""
    return bytes(request).upper()


def tell(listener: socket.socket, runtime: libos.Runtime) -> None:
    connection, _peer = listener.accept()
    with connection:
        connection.sendall(b"%d requests\n" % runtime.stats().net["delivered"])


def main(path: str) -> None:
    end, told = socket.socketpair()  # SIGTERM and Ctrl-C end the loop: Python's signal handlers write a byte there
    told.setblocking(False)
    signal.set_wakeup_fd(told.fileno())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    # The only kthread is this thread. Without work it sleeps at once, in the loop's own epoll.
    runtime = libos.Runtime(path, name="selectors-loop", adopted=1, poll="block")
    listener = socket.create_server(("127.0.0.1", 0))
    with runtime, listener, end, told, selectors.DefaultSelector() as selector:
        runtime.bind(upper)
        runtime.start()
        selector.register(runtime, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        selector.register(end, selectors.EVENT_READ)
        print(f"ask how many: 127.0.0.1 {listener.getsockname()[1]}", flush=True)
        while True:
            again = runtime.turn()  # busy: look at the others between two turns, and do not sleep
            ready = {key.fileobj for key, _ in selector.select(0 if again else None)}
            if listener in ready:
                tell(listener, runtime)
            if end in ready:
                return


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "/run/corelane.sock")
