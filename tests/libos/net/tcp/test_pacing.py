"""A window after idleness leaves in bursts over a round trip (libos/net/tcp/output.c)."""

from __future__ import annotations

from cltest.tcp_host import ACK, MS, TcpHost

from corelane.libos._native import lib

MSS = b"\2\4\5\xb4"  # 1460
RTT = 40 * MS
BURST = 10


def grown(host: TcpHost) -> tuple[int, int]:
    """A connection whose window has grown to more than 60 segments, with nothing under way. (socket, next number)."""
    assert lib.cl_tcp_host_set(host.ptr, lib.CL_TCP_SET_NO_DELAY, 1) == 0
    s, una = host.opened(host.listen(), options=MSS)
    while host.info(s).cwnd <= 60:
        assert host.write(s, bytes(100 * 1460)) > 0
        host.run(RTT)
        while sent := host.heard():
            una = sent[-1].seq + len(sent[-1].data)
            for h in sent:
                host.say(ACK, 1, h.seq + len(h.data), window=65535)
            host.run(RTT)
    return s, una


def test_in_bursts_until_an_acknowledgement_comes() -> None:
    host = TcpHost()
    s, una = grown(host)
    host.run(300 * MS)
    host.write(s, bytes(44 * 1460))  # what the peer's window takes
    info = host.info(s)
    window, bursts, start = info.cwnd, [len(host.heard())], host.now_ns
    assert bursts == [BURST]
    assert window > 2 * BURST
    gap = info.rtt_us * 1000 * BURST // window
    for _ in range(2):
        host.run(gap - MS)
        assert host.heard() == []
        host.run(MS + MS // 100)
        bursts.append(len(host.heard()))
    assert bursts == [BURST, BURST, min(BURST, window - 2 * BURST)]
    assert host.now_ns - start < info.rtt_us * 1000
    host.say(ACK, 1, una + 1460 * BURST, window=65535)  # now they say when to send
    left = min(44, window + BURST) - sum(bursts)
    assert len(host.heard()) >= min(left, BURST)
    host.close()


def test_a_short_pause_is_no_idleness() -> None:
    host = TcpHost()
    s, _ = grown(host)
    host.run(50 * MS)
    host.write(s, bytes(44 * 1460))
    assert len(host.heard()) == 44
    host.close()
