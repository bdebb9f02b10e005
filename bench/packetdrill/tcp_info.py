"""Linux's struct tcp_info (linux/tcp.h) as names and numbers."""

from __future__ import annotations

import struct

# (name, format) in order; fields of half a byte are taken apart below.
_LAYOUT = (
    *((n, "B") for n in ("state", "ca_state", "retransmits", "probes", "backoff", "options", "wscales", "app_limited")),
    *((n, "I") for n in ("rto", "ato", "snd_mss", "rcv_mss", "unacked", "sacked", "lost", "retrans", "fackets")),
    *((n, "I") for n in ("last_data_sent", "last_ack_sent", "last_data_recv", "last_ack_recv", "pmtu", "rcv_ssthresh")),
    *((n, "I") for n in ("rtt", "rttvar", "snd_ssthresh", "snd_cwnd", "advmss", "reordering", "rcv_rtt", "rcv_space")),
    ("total_retrans", "I"),
    *((n, "Q") for n in ("pacing_rate", "max_pacing_rate", "bytes_acked", "bytes_received")),
    *((n, "I") for n in ("segs_out", "segs_in", "notsent_bytes", "min_rtt", "data_segs_in", "data_segs_out")),
    *((n, "Q") for n in ("delivery_rate", "busy_time", "rwnd_limited", "sndbuf_limited")),
    *((n, "I") for n in ("delivered", "delivered_ce")),
    *((n, "Q") for n in ("bytes_sent", "bytes_retrans")),
    *((n, "I") for n in ("dsack_dups", "reord_seen", "rcv_ooopack", "snd_wnd", "rcv_wnd", "rehash")),
)
_FORMAT = struct.Struct("=" + "".join(kind for _, kind in _LAYOUT))
FIELDS = frozenset(f"tcpi_{name}" for name, _ in _LAYOUT if name not in ("wscales", "app_limited")) | {
    *("tcpi_snd_wscale", "tcpi_rcv_wscale", "tcpi_delivery_rate_app_limited", "tcpi_fastopen_client_fail"),
}
SIZE = _FORMAT.size


def read(data: bytes) -> dict[str, int]:
    """The fields of the struct. What an older kernel does not have is 0."""
    values = _FORMAT.unpack(data[:SIZE].ljust(SIZE, b"\0"))
    out = {f"tcpi_{name}": value for (name, _), value in zip(_LAYOUT, values, strict=True)}
    scales, limited = out.pop("tcpi_wscales"), out.pop("tcpi_app_limited")
    return out | {
        "tcpi_snd_wscale": scales & 15,
        "tcpi_rcv_wscale": scales >> 4,
        "tcpi_delivery_rate_app_limited": limited & 1,
        "tcpi_fastopen_client_fail": limited >> 1 & 3,
    }
