"""corelane's own stack under test: libos/net/tcp as a host without a NIC, in virtual time (libos/net/tcp/host.h).

A call that waits is tried again whenever something has happened. The rest is one to one: packets as bytes, calls of
sockets (corelane_sockets.py), settings (corelane_sysctls.py, corelane_options.py), numbers of a connection.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from ...drivers.nic.nic import ipv4_to_int
from ...libos._native import ffi, lib
from ...runtime.errors import CorelaneError
from . import model as m
from .corelane_sockets import OPERATIONS, Again, Sockets
from .corelane_sysctls import Sysctls
from .settings import Settings
from .stack import Outcome
from .tokens import NotSupported

_START_NS = 1_000_000_000_000
_NEVER_US = 1 << 62
_LEAST_MTU = 128  # below that our headers would be most of what is sent
# Linux's numbers of states (linux/tcp_states.h), in the order of enum cl_tcp_state.
_STATES = (7, 10, 2, 3, 1, 4, 5, 8, 11, 9, 6)
_OPEN, _DISORDER, _CWR, _RECOVERY, _LOSS = range(5)  # tcpi_ca_state


class _Pending:
    def __init__(self, stack: CorelaneStack, call: Callable[[], Outcome], waits: bool) -> None:
        self._stack, self._call, self._waits = stack, call, waits
        self._outcome: Outcome | None = None
        self.due_us = _NEVER_US
        self.attempt()

    def attempt(self) -> None:
        """Try it. Done already, or would have to wait: nothing happens."""
        if self._outcome is not None:
            return
        try:
            came = self._call()
        except Again as again:
            self.due_us = _NEVER_US if again.due_us is None else again.due_us
            return
        except OSError as error:
            came = Outcome(-1, errno=error.errno or errno.EIO)
        self.due_us = _NEVER_US
        self._outcome = Outcome(**{**_fields(came), "ended_us": self._stack.now_us()})

    @property
    def done(self) -> bool:
        """It has an outcome."""
        return self._outcome is not None

    def outcome(self, deadline_us: int) -> Outcome | None:
        """See stack.Pending."""
        while self._outcome is None and self._waits and self._stack.step(deadline_us):
            pass
        return self._outcome


def _fields(o: Outcome) -> dict[str, Any]:
    return {name: getattr(o, name) for name in ("value", "errno", "data", "address", "numbers")}


class CorelaneStack:
    """stack.Stack. Raises CorelaneError."""

    name = "corelane"
    real_time = False
    operations = OPERATIONS
    tcp_options: frozenset[type[m.TcpOption]] = frozenset(
        {m.Nop, m.Eol, m.Mss, m.Wscale, m.SackOk, m.Sack, m.Timestamp}
    )
    info_fields: frozenset[str]

    def __init__(self, settings: Settings) -> None:
        out = ffi.new("struct cl_tcp_host **")
        mtu = settings.mtu
        if mtu < _LEAST_MTU:
            raise NotSupported(f"an MTU of {mtu}")
        if lib.cl_tcp_host_new(ipv4_to_int(settings.local_ip), mtu, _START_NS, out):
            raise CorelaneError("run scripts on corelane's TCP", "out of memory")
        self._host, self._now_ns = out[0], _START_NS
        self._sysctls = Sysctls(self._host)
        self._sockets = Sockets(self._host, settings, self.now_us)
        self._pending: list[_Pending] = []
        self._sent: list[tuple[int, bytes]] = []
        self._room, self._at_ns = ffi.new("uint8_t[65536]"), ffi.new("uint64_t *")

    # --- time and packets ---

    def now_us(self) -> int:
        return self._now_ns // 1000

    def step(self, until_us: int) -> bool:
        """The next thing that is due, no later than that. False: nothing is, and it is then."""
        due_ns = min(
            lib.cl_tcp_host_due_ns(self._host), 1000 * min((p.due_us for p in self._pending), default=_NEVER_US)
        )
        now_ns = min(due_ns, until_us * 1000)
        self._now_ns = max(self._now_ns, now_ns)
        lib.cl_tcp_host_run(self._host, self._now_ns)
        self._happened()
        return bool(due_ns <= until_us * 1000)

    def _happened(self) -> None:
        room, at_ns = self._room, self._at_ns
        self._sockets.happened()
        for pending in self._pending:
            pending.attempt()
        self._pending = [p for p in self._pending if not p.done]
        while n := lib.cl_tcp_host_next(self._host, room, 65536, at_ns):
            self._sent.append((at_ns[0] // 1000, bytes(ffi.buffer(room, n))))

    def wait_until(self, when_us: int) -> None:
        while self.step(when_us):
            pass

    def inject(self, packet: bytes) -> None:
        lib.cl_tcp_host_take(self._host, packet, len(packet))
        self._happened()

    def next_packet(self, deadline_us: int) -> tuple[int, bytes] | None:
        while not self._sent and self.step(deadline_us):
            pass
        return self._sent.pop(0) if self._sent else None

    def close(self) -> None:
        lib.cl_tcp_host_delete(self._host)

    # --- settings, numbers, operations ---

    def sysctl(self, name: str, value: str) -> None:
        self._sysctls.set(name, value)

    def info(self, handle: int) -> dict[str, int]:
        found = self._sockets.info(handle)
        return {} if found is None else _info(*found, self._now_ns)

    def begin(self, waits: bool, name: str, *arguments: Any) -> _Pending:
        pending = _Pending(self, self._sockets.call(name, *arguments), waits)
        self._pending.append(pending)
        self._happened()
        return pending


def _info(i: Any, t: Any, now_ns: int) -> dict[str, int]:
    def since_ms(then_ns: int) -> int:
        return (now_ns - then_ns) // 1_000_000 if then_ns else 0

    return {
        "tcpi_state": _STATES[i.state],
        "tcpi_ca_state": (_DISORDER if i.sacked else _OPEN, _RECOVERY, _LOSS, _CWR)[i.recovering],
        "tcpi_retransmits": i.retries,
        "tcpi_probes": i.probes,
        "tcpi_backoff": i.backoff,
        "tcpi_options": i.times | i.sacks << 1 | i.scales << 2 | i.ecn << 3,
        "tcpi_snd_wscale": i.snd_scale,
        "tcpi_rcv_wscale": i.rcv_scale,
        "tcpi_rto": i.rto_us,
        "tcpi_rtt": i.rtt_us,
        "tcpi_rttvar": i.rtt_var_us,
        "tcpi_min_rtt": i.rtt_least_us,
        "tcpi_delivery_rate": i.delivery_rate,
        "tcpi_snd_mss": i.snd_mss,
        "tcpi_rcv_mss": i.rcv_mss,
        "tcpi_advmss": t.mss_offered,
        "tcpi_pmtu": i.snd_mss + 40 + 12 * i.times,
        "tcpi_snd_cwnd": i.cwnd,
        "tcpi_snd_ssthresh": min(i.ssthresh, 0x7FFFFFFF),
        "tcpi_snd_wnd": i.snd_wnd,
        "tcpi_rcv_wnd": i.rcv_wnd,
        "tcpi_unacked": i.unacked,
        "tcpi_sacked": i.sacked,
        "tcpi_lost": i.lost + t.again,  # Linux takes them for lost until they are acknowledged
        "tcpi_retrans": t.again,
        "tcpi_rcv_ooopack": t.out_of_order,
        "tcpi_fackets": 0,  # as in Linux since 4.15
        "tcpi_notsent_bytes": i.unsent,
        "tcpi_total_retrans": i.resent,
        "tcpi_dsack_dups": i.dsacks,
        "tcpi_segs_in": t.segs_in,
        "tcpi_segs_out": t.segs_out,
        "tcpi_data_segs_in": t.data_segs_in,
        "tcpi_data_segs_out": t.data_segs_out,
        "tcpi_bytes_acked": t.bytes_acked,
        "tcpi_bytes_received": t.bytes_received,
        "tcpi_bytes_sent": t.bytes_sent,
        "tcpi_bytes_retrans": t.bytes_resent,
        "tcpi_last_data_sent": since_ms(t.data_sent_ns),
        "tcpi_last_data_recv": since_ms(t.data_came_ns),
        "tcpi_last_ack_recv": since_ms(t.ack_came_ns),
        "tcpi_busy_time": t.busy_ns // 1000,
        "tcpi_rwnd_limited": t.limited_ns // 1000,
    }


CorelaneStack.info_fields = frozenset(
    _info(ffi.new("struct cl_tcp_info *"), ffi.new("struct cl_tcp_host_traffic *"), 0)
)


def corelane_stack(settings: Settings) -> CorelaneStack:
    """A host for a script."""
    return CorelaneStack(settings)
