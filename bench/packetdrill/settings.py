"""What a script's option lines, and the command line, say about how it is run."""

from __future__ import annotations

import ipaddress
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

    ts_tick_us: of timestamps; 0: they are not looked at.
    """

    tolerance_us: int = 4000
    tolerance_percent: float = 12.5
    bind_port: int = 8080
    connect_port: int = 8080
    local_ip: str = "192.168.0.1"
    remote_ip: str = "192.0.2.1"
    mtu: int = 1500
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


_RANGES = {
    "tolerance_usecs": (0, 1 << 40),
    "tcp_ts_tick_usecs": (0, 1 << 40),
    "bind_port": (1, 65535),
    "connect_port": (1, 65535),
    "mtu": (68, 65535),  # RFC 791: the least that each link takes
    "mss": (28, 65495),
}


def _number(name: str, value: str) -> int:
    """Of an option. Raises ValueError, NotSupported."""
    least, most = _RANGES[name]
    found = int(value, 0)
    if not least <= found <= most:
        raise NotSupported(f"--{name}={value}, which is not from {least} to {most}")
    return found


def _address(name: str, value: str) -> str:
    text = value.partition("/")[0]
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        what = "IPv6" if ":" in text else "which is no address"
        raise NotSupported(f"--{name}={value}, {what}") from None


def _option(name: str, value: str) -> dict[str, Any]:
    try:
        match name:
            case "tolerance_usecs":
                return {"tolerance_us": _number(name, value)}
            case "tolerance_percent":
                percent = float(value)
                if not 0 <= percent <= 1e6:
                    raise NotSupported(f"--{name}={value}, which is no share")
                return {"tolerance_percent": percent}
            case "bind_port" | "connect_port" | "mtu":
                return {name: _number(name, value)}
            case "mss":  # of the segments of which a long packet that comes in was put together: nothing here asks
                _number(name, value)
                return {}
            case "tcp_ts_tick_usecs":
                return {"ts_tick_us": _number(name, value)}
            case "local_ip" | "remote_ip":
                return {name: _address(name, value)}
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
