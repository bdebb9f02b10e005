"""ECN and DCTCP on the wire (libos/net/tcp/ecn.c). Agreeing, and the classic echo: scripts/ecn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cltest.tcp_host import ACK, MS, PSH, SYN, TcpHost

from corelane.libos._native import lib

ECE, CWR = lib.CL_TCPF_ECE, lib.CL_TCPF_CWR
NOT, ECT, CE = 0, lib.CL_TCP_ECT0, lib.CL_TCP_CE
OFFER = 1
CUBIC, NEWRENO, DCTCP = range(3)
MSS = b"\2\4\5\xb4"  # 1460


@pytest.fixture
def host() -> Iterator[TcpHost]:
    made = TcpHost()
    for option in (lib.CL_TCP_SET_NO_DELAY, lib.CL_TCP_SET_ECN):
        assert lib.cl_tcp_host_set(made.ptr, option, OFFER) == 0
    yield made
    made.close()


def opened(host: TcpHost, rule: int) -> tuple[int, int]:
    """A connection with ECN; (its socket, the number of its first byte)."""
    assert lib.cl_tcp_host_set(host.ptr, lib.CL_TCP_SET_RULE, rule) == 0
    listener = host.listen()
    host.say(SYN | ECE | CWR, 0, options=MSS)
    ((flags, seq, *_),) = host.heard()
    assert flags == SYN | ACK | ECE
    host.say(ACK, 1, seq + 1)
    s, _ = host.accept(listener)
    assert host.info(s).ecn == 1
    return s, seq + 1


def test_dctcp_echoes_each_mark(host: TcpHost) -> None:
    """Of each segment its sender learns whether it was marked (RFC 8257, section 3.2)."""
    s, ours = opened(host, DCTCP)
    lib.cl_tcp_host_set_socket(host.ptr, s, lib.CL_TCP_SET_QUICK_ACK, 0)
    marks = [NOT, NOT, NOT, ECT, CE, CE, CE, ECT, ECT, CE, NOT, ECT]
    marks = [mark or ECT for mark in marks]
    told: list[bool] = []  # of each byte, by the acknowledgement that covers it
    for i, mark in enumerate(marks):
        host.say(PSH | ACK, 1 + 100 * i, ours, bytes(100), tos=mark)
        for h in host.heard():
            assert h.tos == NOT
            told += [bool(h.flags & ECE)] * (h.ack - 1 - len(told))
    host.run(50 * MS)  # the last one waits for a delayed acknowledgement
    for h in host.heard():
        told += [bool(h.flags & ECE)] * (h.ack - 1 - len(told))
    assert told[::100] == [mark == CE for mark in marks]
    assert len(told) == 100 * len(marks)
    assert host.counts().marks_in == marks.count(CE)


def windows(host: TcpHost, s: int, ours: int, marked_of_10: int, rounds: int) -> list[int]:
    """Fill the window a number of rounds; so many of each 10 segments are echoed as marked. Windows in segments."""
    seen, una, n = [], ours, 0
    for _ in range(rounds):
        host.write(s, bytes(200_000))
        for h in host.heard():
            assert h.tos == ECT
            una = h.seq + len(h.data)
            host.say(ACK | (ECE if n % 10 < marked_of_10 else 0), 1, una)
            n += 1
        host.run(MS)
        seen.append(host.info(s).cwnd)
    return seen


def test_dctcp_falls_by_how_much_is_marked(host: TcpHost) -> None:
    """Few marks cost little, where RFC 3168 asks for the same whatever their number (RFC 8257, section 3.3)."""
    s, ours = opened(host, DCTCP)
    few = windows(host, s, ours, 1, 100)
    assert min(few[50:]) > 0.8 * max(few[50:])
    assert host.counts().ecn_reductions > 25


def test_newreno_halves(host: TcpHost) -> None:
    s, ours = opened(host, NEWRENO)
    before = host.info(s).cwnd
    host.write(s, bytes(20_000))
    host.heard()
    host.say(ACK | ECE, 1, ours + 1460)
    host.say(ACK | ECE, 1, ours + 2920)  # of the same window
    assert host.info(s).cwnd == before // 2
    assert (host.info(s).recovering, host.counts().ecn_reductions) == (3, 1)


def test_it_says_once_that_it_reduced(host: TcpHost) -> None:
    s, ours = opened(host, CUBIC)
    host.write(s, bytes(14_600))
    assert {h.flags & CWR for h in host.heard()} == {0}
    host.say(ACK | ECE, 1, ours + 14_600)
    host.write(s, bytes(4000))
    assert [bool(h.flags & CWR) for h in host.heard()] == [True, False, False]


def test_what_is_not_offered_for_marks(host: TcpHost) -> None:
    """Acknowledgements, probes, and what is sent again (RFC 3168, section 6.1.5)."""
    s, ours = opened(host, CUBIC)
    host.write(s, bytes(1000))
    assert [h.tos for h in host.heard()] == [ECT]
    host.run(700 * MS)
    assert [h.tos for h in host.heard()] == [NOT, NOT]
    host.say(ACK, 1, ours + 1000, window=0)
    host.write(s, b"waits")
    host.run(1000 * MS)
    assert {h.tos for h in host.heard()} == {NOT}


def test_without_an_agreement_marks_mean_nothing(host: TcpHost) -> None:
    s, ours = host.opened(host.listen(), options=MSS)
    host.write(s, bytes(10_000))
    assert {h.tos for h in host.heard()} == {NOT}
    before = host.info(s).cwnd
    host.say(PSH | ACK | ECE | CWR, 1, ours + 5000, b"data", tos=CE)
    assert [h.flags & ECE for h in host.heard()] == [0]
    assert host.info(s).cwnd >= before
    assert host.info(s).recovering == 0


def test_a_syn_that_nobody_answers_asks_no_more(host: TcpHost) -> None:
    """Some boxes drop SYNs with these flags (RFC 3168, section 6.1.1.1)."""
    lib.cl_tcp_host_connect(host.ptr, 1234, 0xC0000201, 80)
    host.run(1500 * MS)
    assert [h.flags for h in host.heard()] == [SYN | ECE | CWR, SYN]


def test_a_cookie_keeps_it(host: TcpHost) -> None:
    listener = host.listen(1)
    host.say(SYN, 0, port=1)
    times = b"\1\1\x08\x0a" + bytes(3) + b"\5" + bytes(4)
    host.heard()
    host.say(SYN | ECE | CWR, 0, port=2, options=MSS + times)
    ((flags, seq, _, _, _, options, *_),) = host.heard()
    assert flags == SYN | ACK | ECE
    assert host.counts().cookies_sent == 1
    echo = options[options.index(b"\x08\x0a") + 2 :][:4]
    host.say(ACK, 1, seq + 1, port=2, options=b"\1\1\x08\x0a" + bytes(3) + b"\6" + echo)
    assert host.info(host.accept(listener)[0]).ecn == 1
