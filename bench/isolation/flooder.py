"""The flooding neighbour in a process of its own: `python -m corelane.bench.isolation.flooder SOCKET NAME CPU SLOTS`.

Reads requests from stdin, one JSON object a line: {"kind": "uplink" | "self" | "silent", "bytes": n, "seconds": s,
"uplink": MAC, "frames": n}, answers each with one: {"sent": n, "fills": n, "empty": n} or {"error": text}. First it
says {"ready": true}.
`Flooder` is the other end.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from typing import Any

from ...runtime.errors import CorelaneError
from .._native import ffi, lib

PAUSE_NS = (
    500_000  # shorter ones cost the shared core more, each ends in a context switch; longer ones make longer fills
)
UPLINK_IP = 0x0A4D0001  # 10.77.0.1: any address that is not an application's


class Flooder:
    """A flooder process attached to the iokernel at `socket_path`, silent until `start`."""

    def __init__(self, socket_path: str, name: str, cpu: int, slots: int = 65536) -> None:
        self.name = name
        command = [sys.executable, "-m", __name__, socket_path, name, str(cpu), str(slots)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self._answer(30)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, kind: str, frame_bytes: int, seconds: float, uplink_mac: str, frames: int = 1) -> None:
        """Begin to flood for some seconds; `wait` must follow. frames: written at each fill by a silent one."""
        assert self._process.stdin is not None
        request = {"kind": kind, "bytes": frame_bytes, "seconds": seconds, "uplink": uplink_mac, "frames": frames}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def wait(self, timeout_s: float) -> dict[str, int]:
        """Result of the flood: sent, fills, empty. CorelaneError if it failed."""
        return self._answer(timeout_s)

    def _answer(self, timeout_s: float) -> dict[str, int]:
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise CorelaneError("flood", "the flooder does not answer")
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "it ended"}
        if "error" in answer:
            raise CorelaneError("flood", str(answer["error"]))
        return answer

    def close(self) -> None:
        """End the process and wait for it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _flood(flood: Any, request: dict[str, Any]) -> dict[str, Any]:
    mac, ip = ffi.new("uint8_t[6]"), ffi.new("uint32_t *")
    lib.cl_flood_address(flood, mac, ip)
    own, silent = request["kind"] == "self", max(1, request["frames"]) if request["kind"] == "silent" else 0
    dst_mac = bytes(ffi.buffer(mac)) if own else bytes.fromhex(request["uplink"].replace(":", ""))
    n = int(request["bytes"])
    frame = ffi.new("uint8_t[]", n)
    dst_ip = ip[0] if own else UPLINK_IP
    lib.cl_net_udp_headers(frame, mac, dst_mac, ip[0], dst_ip, 7, 7, n - int(lib.CL_UDP_HEADERS), False)
    result = ffi.new("struct cl_flood_result *")
    rc = lib.cl_flood_run(flood, frame, n, int(request["seconds"] * 1e9), PAUSE_NS, silent, result)
    if rc < 0:
        return {"error": os.strerror(-rc)}
    return {"sent": int(result.sent), "fills": int(result.fills), "empty": int(result.empty)}


def main(arguments: list[str]) -> int:
    """The program."""
    path, name, cpu, slots = arguments
    os.sched_setaffinity(0, {int(cpu)})
    out, err = ffi.new("struct cl_flood **"), ffi.new("char[256]")
    if lib.cl_flood_new(path.encode(), name.encode(), int(slots), out, err) < 0:
        print(json.dumps({"error": ffi.string(err).decode()}), flush=True)
        return 1
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_flood(out[0], json.loads(line))), flush=True)
    lib.cl_flood_delete(out[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
