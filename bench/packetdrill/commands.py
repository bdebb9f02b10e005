"""The shell commands of scripts that have a meaning here. None is run: each becomes settings of the stack's.

Known are: the usual first script of published tests (common/defaults.sh), set_sysctls.py with /proc/sys files,
`sysctl -w NAME=VALUE`, `echo VALUE > /proc/sys/...`, arithmetic in $(( )), and `sleep`. Without any effect are `true`,
`ip tcp_metrics flush`, what a NIC does for the kernel (`ethtool -K`), queues of a device that hold nothing back (`tc
qdisc`), and the script that puts sysctls back, which is not needed: each test has a stack of its own.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from .tokens import NotSupported

# What tests that begin with common/defaults.sh rely on, as sysctls of Linux. The kernel's own tree and packetdrill's
# have such a file each; these are the values that both set and that can be seen on the wire or in calls.
DEFAULTS: tuple[tuple[str, str], ...] = (
    ("net.ipv4.tcp_rmem", "4096 540000 15728640"),
    ("net.ipv4.tcp_wmem", "4096 262144 4194304"),
    ("net.ipv4.tcp_timestamps", "1"),
    ("net.ipv4.tcp_syn_retries", "5"),
    ("net.ipv4.tcp_synack_retries", "5"),
    ("net.ipv4.tcp_frto", "2"),
    ("net.ipv4.tcp_sack", "1"),
    ("net.ipv4.tcp_dsack", "1"),
    ("net.ipv4.tcp_early_retrans", "3"),
    ("net.ipv4.tcp_recovery", "1"),
    ("net.ipv4.tcp_congestion_control", "cubic"),
    ("net.ipv4.tcp_slow_start_after_idle", "0"),
    ("net.ipv4.tcp_notsent_lowat", "4294967295"),
    ("net.ipv4.tcp_no_metrics_save", "1"),
    ("net.ipv4.tcp_ecn", "0"),
    ("net.ipv4.tcp_min_tso_segs", "4"),
    ("net.ipv4.tcp_invalid_ratelimit", "0"),
    ("net.ipv4.tcp_tso_win_divisor", "3"),
    ("net.ipv4.tcp_fastopen", "0x70403"),
    ("net.ipv4.tcp_fastopen_key", "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4"),
    ("net.ipv4.tcp_pacing_ss_ratio", "200"),
    ("net.ipv4.tcp_pacing_ca_ratio", "120"),
)


_ARITHMETIC = re.compile(r"\$\(\(([0-9*+ \t]{1,80})\)\)")
_SLEEP_MOST_S = 100_000
# Queues of a device that let through at once whatever comes. (fq paces.)
_QUEUES = {"pfifo", "bfifo", "pfifo_fast", "fq_codel", "noqueue", "mq"}


@dataclass(frozen=True)
class Meaning:
    """What a command does: sysctls to set, in order, and a time to wait."""

    sysctls: tuple[tuple[str, str], ...] = ()
    sleep_us: int = 0


def understand(text: str) -> Meaning:
    """The meaning of a command, which may have several lines. Raises NotSupported and names all unknown ones."""
    sysctls: list[tuple[str, str]] = []
    unknown: list[str] = []
    sleep_us = 0
    for line in re.split(r"\n|&&|;", text.replace("\\\n", " ")):
        try:
            words = shlex.split(_ARITHMETIC.sub(_reckoned, line), comments=True)
        except ValueError as error:
            unknown.append(f"the command `{line.strip()}`: {error}")
            continue
        found = _one(words) if words else Meaning()
        if found is None:
            unknown.append(f"the command `{line.strip()}`")
            continue
        sysctls += found.sysctls
        sleep_us += found.sleep_us
    if unknown:
        raise NotSupported("; ".join(unknown))
    return Meaning(tuple(sysctls), sleep_us)


def _reckoned(found: re.Match[str]) -> str:
    """$((15*1024*1024)): products and sums of numbers. Raises ValueError."""
    try:
        total = 0
        for part in found[1].split("+"):
            product = 1
            for factor in part.split("*"):
                product *= int(factor)
            total += product
    except ValueError:
        raise ValueError(f"{found[0]} is no sum of products") from None
    return str(total)


def _one(words: list[str]) -> Meaning | None:
    words = [w for w in words if not re.fullmatch(r"[12&]?>(?:&1|/dev/null)?|/dev/null", w) or w == ">"]
    name = words[0].rsplit("/", 1)[-1]
    if name == "defaults.sh":
        return Meaning(DEFAULTS)
    if (
        name.startswith("sysctl_restore")
        or words[:2] in (["ip", "tcp_metrics"], ["ethtool", "-K"])
        or name in ("true", ":")
    ):
        return Meaning()
    if words[:2] == ["tc", "qdisc"]:
        return Meaning() if _lets_through(words[2:]) else None
    if name == "set_sysctls.py":
        return _settings([w.partition("=") for w in words[1:]])
    if name == "sysctl":
        return _settings([w.partition("=") for w in words[1:] if not w.startswith("-")])
    if name == "echo" and len(words) >= 4 and words[-2] == ">":
        return _settings([(words[-1], "=", " ".join(words[1:-2]))])
    if name == "sleep" and len(words) == 2 and re.fullmatch(r"\d{0,9}\.?\d{1,9}", words[1]):
        seconds = float(words[1])
        return Meaning(sleep_us=round(seconds * 1e6)) if seconds <= _SLEEP_MOST_S else None
    return None


def _lets_through(words: list[str]) -> bool:
    """Whether a device lets all through at once behind `tc qdisc ...`."""
    if words[:1] in (["del"], ["delete"]):
        return True
    kinds = _QUEUES.intersection(words)
    return words[:1] in (["add"], ["replace"], ["change"]) and len(kinds) == 1 and words[-2:] != ["limit", "0"]


def _settings(pairs: list[tuple[str, str, str]]) -> Meaning | None:
    out = []
    for name, equals, value in pairs:
        plain = name.strip().removeprefix("/proc/sys/").replace("/", ".")
        if not equals or not re.fullmatch(r"net\.[a-z0-9_.]+", plain) or "$" in value or "`" in value:
            return None
        out.append((plain, value.strip()))
    return Meaning(tuple(out)) if out else None
