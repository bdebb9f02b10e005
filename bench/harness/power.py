"""One power setting for all arms: /dev/cpu_dma_latency held at 0 where permitted, and said in the output.

Held at 0, idle cores stay in their shallowest state and wake in a few microseconds instead of tens. It is held from the
start of a session to its end, so no arm runs without it when another runs with it. (Linux,
Documentation/power/pm_qos_interface.rst: the request lasts as long as the descriptor is open.)
"""

from __future__ import annotations

import os
import struct
from types import TracebackType

DEVICE = "/dev/cpu_dma_latency"


class ShallowIdle:
    """Context manager that holds the device. `state` says whether it does: text for the settings."""

    def __init__(self, device: str = DEVICE, wanted: bool = True) -> None:
        self.device = device
        self.wanted = wanted
        self.fd = -1
        self.state = "not asked for: idle states as the machine has them, for all arms"

    def __enter__(self) -> ShallowIdle:
        if not self.wanted:
            return self
        try:
            self.fd = os.open(self.device, os.O_WRONLY)
            os.write(self.fd, struct.pack("=i", 0))
            self.state = f"{self.device} held at 0 for all arms"
        except OSError as e:
            self.close()
            self.state = f"{self.device} not held ({e.strerror}): idle states as the machine has them, for all arms"
        return self

    def close(self) -> None:
        """Give the idle states back."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
