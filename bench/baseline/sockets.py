"""C servers on the kernel's UDP sockets (linux_udp.c), as a thread of this process or as a process of their own.

    with LinuxUdp(poll="spin", cpu=1, batch=32) as server:      # echo
        ... server.port ...
    with LinuxUdp(poll="block", store=store) as server:         # the kv command layer on a kernel socket
    with LinuxUdpProcess(poll="spin", cpu=1) as server:         # the same echo in its own process

Which form is the strongest: measured by `corelane bench echo` and written up in docs/performance.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...apps.kv import Store
from ...apps.spin import Spin
from ...drivers.nic.nic import Nic
from ...runtime.closing import Closing
from ...runtime.errors import CorelaneError, check, check_pointer
from .._native import ffi, lib
from ..harness.child import Child

CLIENT_MAC, SERVER_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
POLL = {"block": lib.CL_LINUX_BLOCK, "spin": lib.CL_LINUX_SPIN}


def ipv4_number(address: str) -> int:
    """A dotted address as the number that C takes, host byte order."""
    return int.from_bytes(bytes(int(part) for part in address.split(".")), "big")


@contextlib.contextmanager
def namespace_fd(name: str) -> Iterator[int]:
    """A descriptor of the network namespace that `ip netns` knows by `name`; -1 for "" (this one)."""
    if not name:
        yield -1
        return
    try:
        fd = os.open(Path("/run/netns") / name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CorelaneError(f"enter namespace {name}", os.strerror(error.errno or 0), "see `ip netns`") from error
    try:
        yield fd
    finally:
        os.close(fd)


class LinuxUdp(Closing):
    """A thread of this process that serves a UDP socket; it runs from construction to `close`.

    poll: "block" or "spin", how it waits; cpu: where it is pinned, -1 nowhere; address, port: where it listens (0: any
    free port); netns: a namespace's name; batch: datagrams a system call, 1..64; datagram_bytes: the largest either
    way; store: serve this store, through its thread 0; spin: serve this spin application; without either, echo;
    handler, arg: a burst handler of one's own, as C pointers.
    Raises CorelaneError with the reason if it cannot serve.
    """

    def __init__(
        self,
        *,
        poll: str = "block",
        cpu: int = -1,
        address: str = "127.0.0.1",
        port: int = 0,
        netns: str = "",
        batch: int = 1,
        datagram_bytes: int = 2048,
        store: Store | None = None,
        spin: Spin | None = None,
        handler: Any = None,
        arg: Any = None,
    ) -> None:
        if poll not in POLL:
            raise CorelaneError("serve a UDP socket", f"poll {poll!r} is not known", f"one of {', '.join(POLL)}")
        self._ptr = self._kv = ffi.NULL
        self._store = store
        if store is not None:
            out = ffi.new("struct cl_kv_server **")
            more = ffi.addressof(lib, "cl_linux_udp_reply_more")
            check(lib.cl_kv_server_new(store.ptr, more, out), "serve the store on a UDP socket")
            self._kv = out[0]
            handler, arg = ffi.addressof(lib, "cl_kv_udp_handler"), lib.cl_kv_server_udp(self._kv, 0)
        if spin is not None:
            self._spin = spin
            handler, arg = ffi.addressof(lib, "cl_linux_udp_spin"), spin.ptr
        with namespace_fd(netns) as netns_fd:
            fields = {
                "netns_fd": netns_fd,
                "cpu": cpu,
                "ipv4": ipv4_number(address),
                "port": port,
                "poll": POLL[poll],
                "batch": batch,
                "datagram_bytes": datagram_bytes,
                "handler": handler or ffi.NULL,
                "arg": arg or ffi.NULL,
            }
            server, err = ffi.new("struct cl_linux_udp **"), ffi.new("char[256]")
            rc = lib.cl_linux_udp_start(ffi.new("struct cl_linux_udp_config *", fields), server, err)
        if rc < 0:
            lib.cl_kv_server_delete(self._kv)
            check(rc, f"serve UDP on {address}", err)
        self._ptr = server[0]
        self.address = address
        self.port = int(lib.cl_linux_udp_port(self._ptr))

    def stats(self) -> dict[str, int]:
        """Counters: received = answered + silent + failed; extra datagrams; syscalls."""
        out = ffi.new("struct cl_linux_udp_stats *")
        lib.cl_linux_udp_stats(check_pointer(self._ptr, "read the server's counters", "it is closed"), out)
        return {name: int(getattr(out, name)) for name, _ in ffi.typeof(out[0]).fields}

    def close(self) -> None:
        """Stop serving. Closing twice is allowed."""
        ptr, self._ptr = self._ptr, ffi.NULL
        lib.cl_linux_udp_stop(ptr)
        kv, self._kv = self._kv, ffi.NULL
        lib.cl_kv_server_delete(kv)


def socket_nic(server: str, port: int, generator_ip: str, generator_port: int, buffers: int = 0) -> Nic:
    """A NIC whose only peer is the UDP server at server:port, by a kernel socket: for a load generator without root.

    generator_ip, generator_port: what `Source` of the generator says, with `flows=1`; give it `server_mac=SERVER_MAC`.
    Raises CorelaneError if the socket cannot be opened.
    """
    fields = {
        "server_ipv4": ipv4_number(server),
        "server_port": port,
        "client_ipv4": ipv4_number(generator_ip),
        "client_port": generator_port,
        "client_mac": bytes.fromhex(CLIENT_MAC.replace(":", "")),
        "server_mac": bytes.fromhex(SERVER_MAC.replace(":", "")),
        "buffers": buffers,
    }
    out, err = ffi.new("struct cl_nic **"), ffi.new("char[256]")
    config = ffi.new("struct cl_socket_nic_config *", fields)
    check(lib.cl_socket_nic_new(config, out, err), f"reach {server}:{port}", err)
    return Nic(out[0])


class ServerProcess(Child):
    """A Python process that serves: its line says on which "port"."""

    def __init__(self, module: str, arguments: Sequence[str] = (), netns: str = "") -> None:
        super().__init__(module, arguments, netns=netns)
        self.port = int(self.said["port"])


_MODULE = "corelane.bench.baseline.sockets"


class LinuxUdpProcess(ServerProcess):
    """The echo server of LinuxUdp in a process of its own."""

    def __init__(
        self,
        *,
        poll: str = "block",
        cpu: int = -1,
        address: str = "127.0.0.1",
        port: int = 0,
        batch: int = 1,
        netns: str = "",
    ) -> None:
        words = ["--poll", poll, "--cpu", cpu, "--address", address, "--port", port, "--batch", batch]
        super().__init__(_MODULE, [str(word) for word in words], netns)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(description="UDP echo on a kernel socket, until stdin ends")
    parser.add_argument("--poll", choices=sorted(POLL), default="block")
    parser.add_argument("--cpu", type=int, default=-1)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--batch", type=int, default=1)
    with LinuxUdp(**vars(parser.parse_args(arguments))) as server:
        print(json.dumps({"port": server.port}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
