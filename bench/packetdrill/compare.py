"""What was expected, and what came: the first difference, in words."""

from __future__ import annotations

from dataclasses import replace

from . import model as m
from .settings import Settings
from .text import option_text

_NAMES = {"F": "FIN", "S": "SYN", "R": "RST", ".": "ACK", "U": "URG", "P": "PSH", "E": "ECE", "W": "CWR", "A": "AE"}


def tcp(expected: m.TcpPacket, came: m.TcpPacket, settings: Settings, *, push: bool = True) -> str | None:
    """The difference between segments, both in the script's numbers, or None. Times and data are not looked at.

    push: whether PSH counts. It has to be set where all that was written ends, unless its user has said that more comes
    (RFC 9293, section 3.9.1.2), and may be anywhere.
    """
    if not push:
        expected, came = (replace(p, flags=p.flags.replace("P", "")) for p in (expected, came))
    for name, wanted, found in (
        ("its flags", _flags(expected), _flags(came)),
        ("its sequence number", expected.seq, came.seq),
        ("its length", expected.length, came.length),
        ("its acknowledgement", expected.ack or 0, came.ack or 0),
        ("its window", expected.win if expected.win is not None else came.win, came.win),
        ("its urgent pointer", expected.urg or 0, came.urg or 0),
        ("its counter of AccECN", expected.ace, came.ace),
    ):
        if wanted != found:
            return f"{name}: expected {wanted}, came {found}"
    return _ip(expected.ip, came.ip) or _options(expected.options, came.options or (), settings)


def _flags(p: m.TcpPacket) -> str:
    return "+".join(name for letter, name in _NAMES.items() if p.has(letter)) or "none"


def _ip(expected: m.IpInfo, came: m.IpInfo) -> str | None:
    ecn = came.ecn or "noecn"
    if expected.ecn == "ect01":
        return None if ecn in ("ect0", "ect1") else f"its ECN field: expected ect0 or ect1, came {ecn}"
    if expected.ecn is not None and expected.ecn != ecn:
        return f"its ECN field: expected {expected.ecn}, came {ecn}"
    if expected.tos is not None and expected.tos != came.tos:
        return f"its type of service: expected {expected.tos:#x}, came {came.tos or 0:#x}"
    if expected.ttl is not None and expected.ttl != came.ttl:
        return f"its time to live: expected {expected.ttl}, came {came.ttl}"
    return None


def _options(expected: tuple[m.TcpOption, ...] | None, came: tuple[m.TcpOption, ...], settings: Settings) -> str | None:
    if expected is None:
        return None
    for wanted, found in zip(expected, came, strict=False):
        if not _same_option(wanted, found, settings):
            return f"an option: expected {option_text(wanted)}, came {option_text(found)}"
    if len(expected) > len(came):
        return f"an option is missing: {option_text(expected[len(came)])}"
    if len(came) > len(expected):
        return f"an option is too many: {option_text(came[len(expected)])}"
    return None


def _same_option(wanted: m.TcpOption, found: m.TcpOption, settings: Settings) -> bool:
    """Timestamps count if the script says how long their tick is."""
    if not isinstance(wanted, m.Timestamp) or not isinstance(found, m.Timestamp):
        return wanted == found
    if not settings.ts_tick_us:
        return True
    off = (found.val - wanted.val + (1 << 31)) % (1 << 32) - (1 << 31)
    return abs(off) * settings.ts_tick_us <= settings.tolerance_us and wanted.ecr == found.ecr


def udp(expected: m.UdpPacket, came: m.UdpPacket) -> str | None:
    """The difference between datagrams, or None."""
    if expected.length != came.length:
        return f"its length: expected {expected.length}, came {came.length}"
    return _ip(expected.ip, came.ip)


def icmp(expected: m.IcmpPacket, came: m.IcmpPacket) -> str | None:
    """The difference between ICMP messages, or None."""
    if (expected.kind, expected.code) != (came.kind, came.code):
        return f"its type: expected {expected.kind} {expected.code or ''}, came {came.kind} {came.code or ''}"
    return _ip(expected.ip, came.ip)
