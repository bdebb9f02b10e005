"""The shell commands of scripts that have a meaning here. None is run: each becomes settings of the stack's.

Known are: the usual first script of published tests (common/defaults.sh), set_sysctls.py with /proc/sys files,
`sysctl -w NAME=VALUE`, `echo VALUE > /proc/sys/...`, `ip tcp_metrics flush`, `sleep`, and the script that puts sysctls
back, which is not needed: each test has a stack of its own.
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


@dataclass(frozen=True)
class Meaning:
    """What a command does: sysctls to set, in order, and a time to wait."""

    sysctls: tuple[tuple[str, str], ...] = ()
    sleep_us: int = 0


def understand(text: str) -> Meaning:
    """The meaning of a command, which may have several lines. Raises NotSupported and names the first unknown one."""
    sysctls: list[tuple[str, str]] = []
    sleep_us = 0
    for line in re.split(r"\n|&&|;", text.replace("\\\n", " ")):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            raise NotSupported(f"the command `{line.strip()}`: {error}") from error
        if not words:
            continue
        found = _one(words)
        if found is None:
            raise NotSupported(f"the command `{line.strip()}`")
        sysctls += found.sysctls
        sleep_us += found.sleep_us
    return Meaning(tuple(sysctls), sleep_us)


def _one(words: list[str]) -> Meaning | None:
    words = [w for w in words if not re.fullmatch(r"[12&]?>(?:&1|/dev/null)?|/dev/null", w) or w == ">"]
    name = words[0].rsplit("/", 1)[-1]
    if name == "defaults.sh":
        return Meaning(DEFAULTS)
    if name.startswith("sysctl_restore") or words[:2] == ["ip", "tcp_metrics"]:
        return Meaning()
    if name == "set_sysctls.py":
        return _settings([w.partition("=") for w in words[1:]])
    if name == "sysctl":
        return _settings([w.partition("=") for w in words[1:] if not w.startswith("-")])
    if name == "echo" and len(words) >= 4 and words[-2] == ">":
        return _settings([(words[-1], "=", " ".join(words[1:-2]))])
    if name == "sleep" and len(words) == 2 and re.fullmatch(r"\d*\.?\d+", words[1]):
        return Meaning(sleep_us=round(float(words[1]) * 1e6))
    return None


def _settings(pairs: list[tuple[str, str, str]]) -> Meaning | None:
    out = []
    for name, equals, value in pairs:
        plain = name.strip().removeprefix("/proc/sys/").replace("/", ".")
        if not equals or not re.fullmatch(r"net\.[a-z0-9_.]+", plain):
            return None
        out.append((plain, value.strip()))
    return Meaning(tuple(out)) if out else None
