"""A Raft node as a process whose network and disk can be made to fail while it runs. Started by raftreal.

Attached to an iokernel (--socket), or embedded behind a fault NIC: on an interface of its network namespace (--nic), or
on a port of an iokernel's switch (--socket, --faulty).
Lines of JSON on stdin: {"nic": {"rx": {"loss": 1}, "tx": {}}}, {"disk": {"write_error": 1}}, {"trace": "full"},
{"status": {}}; each is answered by a line on stdout. It ends when stdin does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from typing import Any

from corelane.apps.raft.service.service import RaftService, serve
from corelane.apps.raft.service.settings import GroupSettings, LogSettings, RespSettings, TcpSettings
from corelane.drivers.blk.blk import Blk, BlkFaults, FaultBlk
from corelane.drivers.nic.af_xdp.af_xdp import AfXdp
from corelane.drivers.nic.fault import FaultNic, Faults
from corelane.drivers.nic.nic import Nic
from corelane.drivers.port.port import open_port
from corelane.libos import Runtime


class Node:
    """The node, its NIC and its disk."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.disk: FaultBlk | None = None
        self.nic: FaultNic | None = None
        self.options = options
        address = dict(p.split("=") for p in options.peers.split(","))[str(options.id)].split(":")[0]
        name = f"raft-{options.id}"
        if options.nic or options.faulty:
            below: Nic = (
                AfXdp(options.nic, addresses=[f"{address}/16"]) if options.nic else open_port(options.socket, name=name)
            )
            self.nic = FaultNic(below, seed=options.seed, delay_us=(0, 20000), adjustable=True)
            self.runtime = Runtime(nic=self.nic, name=name, poll="block", address=f"{address}/16")
        else:
            self.runtime = Runtime(options.socket, name=name, poll="block")
        self.service: RaftService = serve(
            self.runtime,
            options.id,
            options.peers,
            kv_port=0 if options.resp else 11211,
            tcp=None if options.resp else TcpSettings(port=11211),
            resp=RespSettings(port=6379) if options.resp else None,
            group=GroupSettings(memory_bytes=4 << 20, election_ms=options.election_ms),
            log=LogSettings(file=options.log),
            disk=self._wrap,
            log_entries=options.log_entries,
        )
        self.runtime.start()

    def _wrap(self, blk: Blk) -> Blk:
        self.disk = FaultBlk(blk, seed=self.options.seed)
        return self.disk

    def do(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out one line."""
        if "nic" in request and self.nic:
            self.nic.set(*(Faults(**request["nic"].get(side, {})) for side in ("rx", "tx")))
        if "disk" in request and self.disk:
            self.disk.set(BlkFaults(**request["disk"]))
        if "trace" in request:
            self.runtime.trace = request["trace"]
        status = self.service.status()
        status.pop("members")
        lost = sum(self.nic.faults(side).lost for side in ("rx", "tx")) if self.nic else 0
        return status | {"stats": self.service.stats(), "lost": lost}

    def close(self) -> None:
        """The runtime goes first: handlers point into the service."""
        self.runtime.stop()
        self.runtime.close()
        self.service.close()
        if self.nic:
            self.nic.close()


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser()
    for name in ("--socket", "--nic", "--peers", "--log"):
        parser.add_argument(name)
    for name in ("--id", "--seed", "--election-ms", "--log-entries"):
        parser.add_argument(name, type=int, default=0)
    for name in ("--faulty", "--resp"):
        parser.add_argument(name, action="store_true")
    with contextlib.closing(Node(parser.parse_args())) as node:
        print(json.dumps({"serving": node.options.id}), flush=True)
        for line in sys.stdin:
            print(json.dumps(node.do(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
