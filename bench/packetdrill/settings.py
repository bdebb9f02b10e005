"""What a script's option lines, and the command line, say about how it is run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from . import model as m
from .tokens import NotSupported

# Options that change nothing here: how packetdrill runs code, prints, or talks to a second machine's NIC.
_WITHOUT_MEANING = {"code_command", "code_format", "code_sockopt", "define", "verbose", "debug", "speed", "gateway_ip"}
_WITHOUT_MEANING |= {"netmask_ip", "send_omit_free", "is_anyip", "non_fatal"}


@dataclass(frozen=True)
class Settings:
    """Times in microseconds; tolerance_percent of the time since the event before.

    ts_tick_us: of timestamps; 0: they are not looked at. mss: what the local side takes; 0: as the MTU leaves.
    """

    tolerance_us: int = 4000
    tolerance_percent: float = 12.5
    bind_port: int = 8080
    connect_port: int = 8080
    local_ip: str = "192.168.0.1"
    remote_ip: str = "192.0.2.1"
    mtu: int = 1500
    mss: int = 0
    strict_segments: bool = False
    ts_tick_us: int = 0

    def allowed_us(self, since_us: int) -> int:
        """How far off a time may be that is `since_us` after the event before."""
        return max(self.tolerance_us, int(max(since_us, 0) * self.tolerance_percent / 100))


def settings(script: m.Script, least_tolerance_us: int = 0) -> Settings:
    """Of a script. Raises NotSupported for options without a meaning here."""
    out = Settings()
    for name, value in script.options:
        out = replace(out, **_option(name, value or ""))
    return replace(out, tolerance_us=max(out.tolerance_us, least_tolerance_us))


def _option(name: str, value: str) -> dict[str, Any]:
    try:
        match name:
            case "tolerance_usecs":
                return {"tolerance_us": int(value)}
            case "tolerance_percent":
                return {"tolerance_percent": float(value)}
            case "bind_port" | "connect_port" | "mtu" | "mss":
                return {name: int(value)}
            case "tcp_ts_tick_usecs":
                return {"ts_tick_us": int(value)}
            case "local_ip" | "remote_ip":
                return {name: value.partition("/")[0]}
            case "strict_segments":
                return {name: True}
            case "tcp_ts_ecr_scaled":
                return {}
            case "ip_version":
                if value == "ipv4":
                    return {}
                raise NotSupported(f"--ip_version={value}")
    except ValueError:
        raise NotSupported(f"--{name}={value}, which is no number") from None
    if name in _WITHOUT_MEANING:
        return {}
    raise NotSupported(f"the option --{name}")
