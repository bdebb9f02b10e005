"""64 ordinary clients: sockets of the kernel, in a process that has no part in the system that it asks.

The group is that of the arm `disk`, but the iokernel's uplink is a tap in a network namespace of the arm's own, and a
C program there puts by memcached's UDP. Beside etcd's clients that makes the clients alike: one process, the kernel's
stack; and, where they share one socket (baseline/udp_mux_put.c) as etcd's share one connection, as many puts a system
call as are due. baseline/udp_put.c has a socket for each client. They are kept on the iokernel's core, since the other
one is the nodes'; the iokernel polls adaptively, and yields to them. etcd's, and its members, have both cores, and
those alone.

`raw` is a server in our place (baseline/raw_put.c), on loopback: what the clients can get.
"""

from __future__ import annotations

import contextlib
import struct
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

from ...drivers.linux import netns
from ...drivers.nic.tap.tap import Tap
from ...runtime.errors import CorelaneError, SystemLimit
from ..baseline.compiled import build
from ..baseline.peers import PATIENCE_S, Puts
from ..harness.affinity import started_on
from .nodes import KV_PORT, Group, address

CLIENTS_ADDRESS = "10.77.0.1/24"  # in the switch's subnet


@contextlib.contextmanager
def tap_group(
    cores: tuple[int, int], logs: Path | None, *, resp: bool = False, **words: int
) -> Iterator[tuple[Group, netns.Namespace]]:
    """Nodes whose uplink is a tap, node 1 to lead, and the namespace from which they are reached. resp: as of Group.
    words: of Group.start_all."""
    with contextlib.ExitStack() as stack:
        space = stack.enter_context(netns.namespace("raft"))
        with space.entered():
            nic = stack.enter_context(contextlib.closing(Tap(address=CLIENTS_ADDRESS)))
        group = stack.enter_context(Group(cores, uplinks=[nic], logs=logs, managed=False, poll="adaptive", resp=resp))
        group.start_all(prefer=1, **words)
        yield group, space


class UdpClients:
    """The programs, compiled into `folder`. Raises SystemLimit if they, or a namespace, cannot be had here."""

    def __init__(self, folder: Path) -> None:
        if why := netns.missing():
            raise SystemLimit("put by a kernel's sockets", why)
        self._folder = folder
        self._program = build("udp_put", "CORELANE_UDP_PUT", (), folder)
        self._mux = build("udp_mux_put", "CORELANE_UDP_MUX_PUT", (), folder)
        self._raw = build("raw_put", "CORELANE_RAW_PUT", (), folder)

    @contextlib.contextmanager
    def raw(self, cpus: Collection[int]) -> Iterator[netns.Namespace]:
        """A raw server at node 1's address, on `cpus`, and the namespace on whose loopback it is. Its file is in
        `folder`."""
        with netns.namespace("raft") as space:
            space.ip("address", "add", f"{address(1)}/32", "dev", "lo")
            command = [str(self._raw), address(1), str(KV_PORT), str(self._folder / "raw")]
            with started_on(cpus):
                server = subprocess.Popen(space.command(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            with server:
                try:
                    assert server.stdout is not None
                    assert server.stderr is not None
                    if server.stdout.readline() != b"ready\n":
                        said = server.stderr.read().decode(errors="replace").strip()
                        raise CorelaneError("start a raw server", said)
                    yield space
                finally:
                    server.kill()

    def put(
        self,
        space: netns.Namespace,
        clients: int,
        seconds: float,
        key_bytes: int,
        value_bytes: int,
        cpus: Collection[int],
        *,
        one_socket: bool = False,
    ) -> Puts:
        """Of so many clients, one put outstanding each, to node 1 for so long after 0.3 s to warm up.

        cpus: they keep to these.

        `again`: puts that were sent once more for want of an answer in 0.1 s; `refused`: that were not stored.
        """
        words = [address(1), KV_PORT, clients, f"{seconds:.3f}", key_bytes, value_bytes]
        command = space.command([str(self._mux if one_socket else self._program), *map(str, words)])
        with started_on(cpus):
            done = subprocess.run(command, capture_output=True, check=False, timeout=seconds + PATIENCE_S)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise CorelaneError("put by a kernel's sockets", said[-1])
        answered, again, refused = struct.unpack_from("=3Q", done.stdout)
        latencies = sorted(struct.unpack_from(f"={answered}Q", done.stdout, 24))
        return Puts(latencies, seconds, {"again": again, "refused": refused})
