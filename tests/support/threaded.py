"""A TCP server on 127.0.0.1 whose every connection has a thread of the test."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def serving(serve: Callable[[socket.socket, int], None]) -> Iterator[int]:
    """Each connection is handled by `serve(socket, number)`, and closed after it; the server's port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    threads: list[threading.Thread] = []

    def handle(peer: socket.socket, number: int) -> None:
        with peer, contextlib.suppress(OSError):
            serve(peer, number)

    def accept() -> None:
        with contextlib.suppress(OSError):
            for number in range(10_000):
                peer, _ = listener.accept()
                threads.append(threading.Thread(target=handle, args=(peer, number), daemon=True))
                threads[-1].start()

    threads.append(threading.Thread(target=accept, daemon=True))
    threads[0].start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join(60)
