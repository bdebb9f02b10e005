"""A resp server with a log as a process of its own behind a tap, to be killed: PATH of the log, options as NAME=VALUE.

Run in the namespace of its clients. It says "ready RECORDS BYTES CUT" when it serves, and ends when its input does.
"""

from __future__ import annotations

import sys

from corelane.apps.resp.app import Options, RespService
from corelane.drivers.nic.tap.tap import Tap
from corelane.libos import Runtime

LINUX, OURS, PORT = "10.99.4.1", "10.99.4.2", 6379


def main() -> None:
    """Serve until the input ends."""
    path, *words = sys.argv[1:]
    options = {name: int(value) for name, value in (word.split("=") for word in words)}
    with (
        Tap(address=f"{LINUX}/24", ipv4=f"{OURS}/24") as nic,
        Runtime(nic=nic, address=f"{OURS}/24", poll="block") as runtime,
    ):
        service = RespService(runtime, Options(log=path, memory_bytes=16 << 20, **options))
        runtime.start()
        found = service.recovered
        assert found is not None
        print("ready", found.records, found.bytes, found.cut, flush=True)
        sys.stdin.read()
        runtime.stop()
        service.close()


if __name__ == "__main__":
    main()
