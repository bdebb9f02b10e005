"""Linux's sysctls on a host of corelane's TCP: which are settings, which say what is so anyhow, which are refused.

Sysctls that say how Linux batches, paces, caches or counts have none: nothing that a script sees depends on them here.
"""

from __future__ import annotations

from typing import Any

from ...libos._native import lib
from .tokens import NotSupported

# Settings, with what a value is multiplied by.
_NUMBERS = {
    "tcp_keepalive_time": (lib.CL_TCP_SET_KEEP_IDLE, 1000),
    "tcp_keepalive_intvl": (lib.CL_TCP_SET_KEEP_INTERVAL, 1000),
    "tcp_keepalive_probes": (lib.CL_TCP_SET_KEEP_PROBES, 1),
    "tcp_fin_timeout": (lib.CL_TCP_SET_FIN_WAIT, 1000),
    "tcp_early_retrans": (lib.CL_TCP_SET_TAIL_PROBES, 1),
    "tcp_ecn": (lib.CL_TCP_SET_ECN, 1),
    "tcp_mtu_probing": (lib.CL_TCP_SET_BLACK_HOLES, 1),
    "tcp_syn_retries": (lib.CL_TCP_SET_SYN_RETRIES, 1),
    "tcp_synack_retries": (lib.CL_TCP_SET_SYN_ACK_RETRIES, 1),
    "tcp_rto_min_us": (lib.CL_TCP_SET_RTO_LEAST, 0.001),
}
_OPTIONS = {
    "tcp_timestamps": lib.CL_TCPO_TIMES,
    "tcp_sack": lib.CL_TCPO_SACK_OK,
    "tcp_window_scaling": lib.CL_TCPO_WSCALE,
}
# Of Linux's ways what this stack does: other values are refused.
_SAME = {
    "tcp_recovery": ("1",),
    "tcp_frto": ("1", "2"),
    "tcp_dsack": ("1",),
    "tcp_tw_reuse": ("0", "2"),  # 2: on loopback alone, which no script uses
    "tcp_invalid_ratelimit": ("0",),
    "tcp_fack": ("0",),
    "tcp_reordering": ("3",),
    "tcp_syncookies": ("1",),
    "tcp_abort_on_overflow": ("0",),
    "tcp_adv_win_scale": ("1",),
    "tcp_app_win": ("31",),
    "tcp_retrans_collapse": ("0", "1"),
    "tcp_syn_linear_timeouts": ("0",),
    "tcp_rfc1337": ("1",),
    "tcp_stdurg": ("0",),
    "tcp_retries1": ("3",),
    "tcp_retries2": ("15",),
    "tcp_orphan_retries": ("0",),
    "ip_forward": ("0",),
    "ip_no_pmtu_disc": ("0",),
    "tcp_shrink_window": ("0",),
    "tcp_notsent_lowat": ("4294967295", "-1"),
}
# How Linux batches, paces, caches and counts. Fast Open: whatever of it is allowed, it is not spoken; a script that
# uses it needs a constant or an option that is refused.
_WITHOUT_MEANING = {
    *("tcp_min_tso_segs", "tcp_tso_win_divisor", "tcp_tso_rtt_log", "tcp_autocorking", "tcp_limit_output_bytes"),
    *("tcp_pacing_ss_ratio", "tcp_pacing_ca_ratio", "tcp_no_metrics_save", "tcp_no_ssthresh_metrics_save"),
    *("tcp_fastopen", "tcp_fastopen_key", "tcp_fastopen_blackhole_timeout_sec", "tcp_moderate_rcvbuf"),
    *("tcp_thin_linear_timeouts", "tcp_max_syn_backlog", "tcp_challenge_ack_limit", "tcp_comp_sack_nr"),
    *("tcp_comp_sack_delay_ns", "tcp_comp_sack_slack_ns", "tcp_backlog_ack_defer", "tcp_workaround_signed_windows"),
    *("tcp_mem", "ip_local_port_range", "tcp_migrate_req", "tcp_plb_enabled", "tcp_ecn_fallback"),
}
_RULES = {"cubic": 0, "reno": 1, "dctcp": 2}
_SCALE_MOST = 14
# Where our defaults are not Linux's.
_DEFAULTS = (("net.ipv4.tcp_mtu_probing", "0"),)


class Sysctls:
    """Of one host. Raises NotSupported."""

    def __init__(self, host: Any) -> None:
        self._host = host
        self._offered = lib.CL_TCPO_TIMES | lib.CL_TCPO_SACK_OK | lib.CL_TCPO_WSCALE
        for name, value in _DEFAULTS:
            self.set(name, value)

    def set(self, name: str, value: str) -> None:
        """A setting, by Linux's name."""
        plain = name.removeprefix("net.ipv4.")
        try:
            done = self._set(plain, value)
        except ValueError:
            done = False
        if not done:
            raise NotSupported(f"sysctl {name}={value}")

    def _set(self, plain: str, value: str) -> bool:
        """Whether it has a meaning. Raises ValueError: no number."""
        if plain in _NUMBERS:
            option, factor = _NUMBERS[plain]
            return self._put(option, round(int(value, 0) * factor))
        if plain in _OPTIONS:
            bit = _OPTIONS[plain]
            self._offered = self._offered | bit if int(value, 0) else self._offered & ~bit
            return self._put(lib.CL_TCP_SET_OPTIONS, self._offered)
        if plain == "tcp_slow_start_after_idle":
            return self._put(lib.CL_TCP_SET_KEEPS_WINDOW, int(int(value, 0) == 0))
        if plain == "tcp_congestion_control":
            return value in _RULES and self._put(lib.CL_TCP_SET_RULE, _RULES[value])
        if plain == "tcp_wmem":
            _, size, _ = map(int, value.split())
            return self._put(lib.CL_TCP_SET_SEND_LIMIT, size)
        if plain == "tcp_rmem":
            _, size, most = map(int, value.split())
            return self._put(lib.CL_TCP_SET_RECEIVE_LIMIT, size) and self._put(lib.CL_TCP_SET_WSCALE, scale_for(most))
        return plain in _WITHOUT_MEANING or value in _SAME.get(plain, ())

    def _put(self, option: int, value: int) -> bool:
        return 0 <= value < 1 << 31 and lib.cl_tcp_host_set(self._host, option, value) == 0


def scale_for(space: int) -> int:
    """The window scale that Linux offers for a buffer that may grow so large."""
    return min(max(space.bit_length() - 16, 0), _SCALE_MOST)
