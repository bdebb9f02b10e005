"""Groups of options of an Iokernel: defaults that hold, and limits."""

from __future__ import annotations

from typing import Any

import pytest

from corelane.iokernel import Access, Allocation, AppConfig, AppMemory, Idle, NetworkConfig, Patience
from corelane.runtime.config import CoresConfig, IokernelConfig
from corelane.runtime.errors import ConfigError


@pytest.mark.parametrize(
    ("group", "options", "says"),
    [
        (Idle, {"spin_us": -1}, "Idle: spin_us: is -1 (expected a whole number from 0 to 3600000000)"),
        (Idle, {"pause_us": 0.5}, "Idle: pause_us: is 0.5"),
        (Allocation, {"interval_us": 0}, "Allocation: interval_us: is 0 (expected a whole number from 1 to 1000000)"),
        (Allocation, {"cede_us": 0}, "Allocation: cede_us: is 0"),
        (Allocation, {"interrupt_us": 1 << 32}, "Allocation: interrupt_us: is 4294967296"),
        (Access, {"mode": 0o1777}, "Access: mode: is 1023 (expected a whole number from 0 to 511)"),
        (Access, {"uids": (0, -1)}, "Access: uids: is -1"),
        (Access, {"gids": ("staff",)}, 'Access: gids: is "staff"'),
        (AppMemory, {"max_apps": 0}, "AppMemory: max_apps: is 0"),
        (AppMemory, {"max_arena_mib": 0}, "AppMemory: max_arena_mib: is 0"),
        (AppMemory, {"huge_pages": "thp"}, 'AppMemory: huge_pages: is "thp" (expected true or false)'),
        (Patience, {"client_s": 0.0}, "Patience: client_s: is 0.0"),
        (Patience, {"loop_s": -1}, "Patience: loop_s: is -1"),
        (AppConfig, {"ip": "10.77"}, 'AppConfig: ip: is "10.77" (expected an IPv4 address like'),
        (AppConfig, {"class_": "fast"}, 'AppConfig: class_: is "fast" (expected one of "latency", "batch")'),
        (AppConfig, {"cores": (1, 1)}, "AppConfig: cores: is [1, 1] (expected each CPU once)"),
        (AppConfig, {"rx_slots": 100}, "AppConfig: rx_slots: is 100 (expected a power of two"),
        (NetworkConfig, {"subnet": "10.0.0.1/16"}, "NetworkConfig: subnet"),
        (NetworkConfig, {"mtu": 100}, "NetworkConfig: mtu: is 100"),
    ],
)
def test_a_group_has_limits(group: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        group(**options)
    assert str(refused.value).startswith(says)


def test_the_defaults_are_those_of_the_configuration_file() -> None:
    io, cores, idle, allocation = IokernelConfig(), CoresConfig(), Idle(), Allocation()
    assert (idle.spin_us, idle.pause_us) == (io.spin_us, io.pause_us)
    assert (allocation.interval_us, allocation.cede_us) == (cores.interval_us, cores.cede_us)
    assert allocation.interrupt_us == cores.interrupt_us
