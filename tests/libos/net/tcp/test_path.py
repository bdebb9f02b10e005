"""What a connection learns of its path (libos/net/tcp/path.c): ICMP errors, a smaller MTU, routers that say nothing.

And when it is larger again, and what others to the same peer know of it (libos/net/tcp/paths.h)."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from cltest.tcp_host import ACK, MS, PEER, PEER_PORT, PORT, SYN, TcpHost, joined

from corelane.libos._native import lib

SECOND = 1000 * MS
UNREACHABLE, EXCEEDED = 3, 11
NET, HOST, PROTOCOL, PORT_CODE, TOO_LARGE = range(5)
DATA = bytes(i * 7 & 255 for i in range(5000))
MSS = b"\2\4\5\xb4"  # 1460


@pytest.fixture
def host() -> Iterator[TcpHost]:
    made = TcpHost()
    assert lib.cl_tcp_host_set(made.ptr, lib.CL_TCP_SET_NO_DELAY, 1) == 0
    yield made
    made.close()


def sending(host: TcpHost) -> tuple[int, int]:
    """A connection with all of DATA under way. Returns its socket and the number of the first byte."""
    s, ours = host.opened(host.listen(), options=MSS)
    assert host.write(s, DATA) == len(DATA)
    assert [len(h.data) for h in host.heard()] == [1460, 1460, 1460, 620]
    return s, ours


def test_a_smaller_mtu_cuts_anew_what_is_under_way(host: TcpHost) -> None:
    s, ours = sending(host)
    window = host.info(s).cwnd * host.info(s).snd_mss
    host.complain(UNREACHABLE, TOO_LARGE, ours, mtu=1000)
    again = host.heard()
    assert [h.seq for h in again] == [ours + 960 * i for i in range(6)]
    assert [len(h.data) for h in again] == [960] * 5 + [200]
    assert joined(again) == DATA
    info = host.info(s)
    assert info.snd_mss == 960
    assert info.cwnd == window // 960  # it was no congestion (RFC 1191, section 6.4)
    host.say(ACK, 1, ours + 5000)
    host.write(s, DATA)
    assert [len(h.data) for h in host.heard()] == [960] * 5 + [200]
    assert (host.counts().mtu_shrunk, host.counts().icmp_ignored) == (1, 0)


@pytest.mark.parametrize(("mtu", "mss"), [(1000, 960), (552, 512), (100, 512), (0, 1452), (1499, 1459)])
def test_how_small_it_gets(host: TcpHost, mtu: int, mss: int) -> None:
    """Down to a least one; and of a router that names none to the next size that links have (RFC 1191, section 5)."""
    s, ours = sending(host)
    host.complain(UNREACHABLE, TOO_LARGE, ours, mtu=mtu)
    assert host.info(s).snd_mss == mss


def test_what_is_not_believed(host: TcpHost) -> None:
    s, ours = sending(host)
    for seq in (ours - 1, ours + 5000, ours + 2**31):
        host.complain(UNREACHABLE, TOO_LARGE, seq, mtu=600)
    host.complain(UNREACHABLE, TOO_LARGE, ours, mtu=1500)  # what it quotes would have fit
    host.complain(UNREACHABLE, TOO_LARGE, ours, mtu=9000)
    assert (host.info(s).snd_mss, host.heard()) == (1460, [])
    assert (host.counts().icmp_errors, host.counts().icmp_ignored) == (5, 5)
    host.complain(UNREACHABLE, TOO_LARGE, ours, mtu=600, port=PEER_PORT + 1)  # of another connection
    assert host.counts().icmp_errors == 5


@pytest.mark.parametrize("code", [NET, HOST, PROTOCOL, PORT_CODE, 13])
def test_no_error_ends_what_is_open(host: TcpHost, code: int) -> None:
    s, ours = sending(host)
    host.complain(UNREACHABLE, code, ours)
    assert host.write(s, b"more") == 4
    host.say(ACK, 1, ours + 5000)
    assert host.info(s).state == 4
    for _ in range(40):
        host.run(60 * SECOND)
    assert lib.cl_tcp_host_error(host.ptr, s) == errno.ETIMEDOUT  # it was answered after that error


def test_the_reason_is_what_the_path_says(host: TcpHost) -> None:
    s, ours = sending(host)
    for _ in range(40):
        host.run(60 * SECOND)
        host.complain(UNREACHABLE, HOST, ours)
    assert lib.cl_tcp_host_error(host.ptr, s) == errno.EHOSTUNREACH


CONNECTING = {
    "port unreachable": (UNREACHABLE, PORT_CODE, errno.ECONNREFUSED, True),
    "protocol unreachable": (UNREACHABLE, PROTOCOL, errno.ENOPROTOOPT, True),
    "host unreachable": (UNREACHABLE, HOST, errno.EHOSTUNREACH, False),
    "net unreachable": (UNREACHABLE, NET, errno.ENETUNREACH, False),
    "time exceeded": (EXCEEDED, 0, errno.EHOSTUNREACH, False),
}


@pytest.mark.parametrize("what", CONNECTING)
def test_connecting(host: TcpHost, what: str) -> None:
    """A host that refuses ends it at once, a router's word only when nobody has answered (RFC 1122, 4.2.3.9)."""
    kind, code, error, hard = CONNECTING[what]
    s = lib.cl_tcp_host_connect(host.ptr, PORT, PEER, PEER_PORT)
    ((flags, seq, *_),) = host.heard()
    assert flags == SYN
    host.complain(kind, code, seq + 1)
    assert lib.cl_tcp_host_connected(host.ptr, s) == -errno.EINPROGRESS
    host.complain(kind, code, seq)
    assert (lib.cl_tcp_host_connected(host.ptr, s) == -error) == hard
    host.run(200 * SECOND)
    assert lib.cl_tcp_host_connected(host.ptr, s) == -error


def test_a_half_open_one_ends_where_its_peer_refuses(host: TcpHost) -> None:
    host.listen(1)
    host.say(SYN, 0)
    ((_, seq, *_),) = host.heard()
    host.complain(UNREACHABLE, PORT_CODE, seq)
    host.say(SYN, 0, port=PEER_PORT + 1)
    assert len(host.heard()) == 1
    assert host.counts().cookies_sent == 0  # its place was free again


@pytest.mark.parametrize(("takes", "mss"), [(1240, 1240), (600, 512)])
def test_a_black_hole_is_found(host: TcpHost, takes: int, mss: int) -> None:
    """A path that swallows what is too large, and says nothing (RFC 4821; 2923, section 2.1)."""
    s, ours = sending(host)
    taken = 0
    while taken < len(DATA):
        host.run(SECOND // 10)
        assert host.now_ns < 60 * SECOND
        for h in host.heard():
            if len(h.data) <= takes and h.seq == (ours + taken) % 2**32:
                assert h.data == DATA[taken : taken + len(h.data)]
                taken += len(h.data)
                host.say(ACK, 1, ours + taken)
    assert host.info(s).snd_mss == mss
    host.write(s, DATA)
    assert max(len(h.data) for h in host.heard()) <= mss


def test_a_short_outage_makes_nothing_smaller(host: TcpHost) -> None:
    s, ours = sending(host)
    host.run(SECOND // 2)
    assert host.counts().timeouts == 1
    host.say(ACK, 1, ours + 5000)
    assert host.info(s).snd_mss == 1460


def test_small_segments_that_are_lost_are_no_black_hole(host: TcpHost) -> None:
    s, ours = host.opened(host.listen(), options=MSS)
    host.write(s, b"small")
    host.run(60 * SECOND)
    assert host.counts().timeouts > 5
    host.say(ACK, 1, ours + 5)
    assert (host.info(s).snd_mss, host.counts().mtu_shrunk) == (1460, 0)


LONG = bytes(i * 5 & 255 for i in range(20_000))
MINUTES = 60 * SECOND


def sizes(host: TcpHost) -> list[int]:
    return [len(h.data) for h in host.heard()]


def shrunk(host: TcpHost, mtu: int = 1300) -> tuple[int, int]:
    """A connection whose path was found to take `mtu`; nothing is under way. Its socket, and its next number."""
    s, ours = sending(host)
    host.complain(UNREACHABLE, TOO_LARGE, ours, mtu=mtu)
    host.heard()
    host.say(ACK, 1, ours + 5000)
    assert host.info(s).snd_mss == mtu - 40
    return s, ours + 5000


def test_a_path_is_tried_again_after_ten_minutes(host: TcpHost) -> None:
    """With one packet of the next size that links have, and after that the next (RFC 1191, section 6.3)."""
    s, ours = shrunk(host)
    host.run(9 * MINUTES)
    host.write(s, DATA)
    assert sizes(host) == [1260] * 3 + [1220]
    host.say(ACK, 1, ours := ours + 5000)
    host.run(2 * MINUTES)
    host.write(s, b"small")
    assert sizes(host) == [5], "it takes data"
    host.say(ACK, 1, ours := ours + 5)
    host.write(s, DATA)
    assert sizes(host) == [1452, 1260, 1260, 1028]
    assert host.info(s).snd_mss == 1260, "it is not known yet"
    host.say(ACK, 1, ours := ours + 5000)
    assert host.info(s).snd_mss == 1452
    host.write(s, DATA)
    assert sizes(host) == [1452] * 3 + [644]
    host.say(ACK, 1, ours := ours + 5000)
    host.run(2 * MINUTES + SECOND)
    host.write(s, DATA)
    assert sizes(host)[:2] == [1460, 1452], "as much as both ends take"
    host.say(ACK, 1, ours := ours + 5000)
    host.run(20 * MINUTES)
    host.write(s, DATA)
    assert sizes(host) == [1460] * 3 + [620]
    assert (host.counts().paths_tried, host.counts().mtu_grown) == (2, 2)


@pytest.mark.parametrize("told", [0, 1300, 1400], ids=["silent", "as before", "a little more"])
def test_a_path_that_has_not_grown_is_left_alone_for_ten_minutes(host: TcpHost, told: int) -> None:
    """What was lost is sent again in pieces, by acknowledgements that stand still or by a router's word."""
    s, ours = shrunk(host)
    host.run(11 * MINUTES)
    host.write(s, LONG[:8000])
    assert sizes(host)[0] == 1452
    if told:
        host.complain(UNREACHABLE, TOO_LARGE, ours, mtu=told)
    for _ in range(4):
        host.say(ACK, 1, ours)
    mss = max(told - 40, 1260)
    again = host.heard()
    assert [len(h.data) for h in again][:2] == [mss, 1452 - mss]
    assert joined(again[:2]) == LONG[:1452]
    host.say(ACK, 1, ours := ours + 8000)
    assert host.info(s).snd_mss == mss
    host.run(9 * MINUTES)
    host.write(s, DATA)
    assert max(sizes(host)) == mss
    host.say(ACK, 1, ours := ours + 5000)
    host.run(2 * MINUTES)
    host.write(s, DATA)
    assert max(sizes(host)) == 1452
    assert (host.counts().paths_tried, host.counts().mtu_grown) == (2, 0)


def test_others_to_the_same_peer_know_it_too(host: TcpHost) -> None:
    listener = host.listen()
    before, ours_before = host.opened(listener, port=1000, options=MSS)
    s, ours = host.opened(listener, options=MSS)
    host.write(s, DATA)
    host.heard()
    host.complain(UNREACHABLE, TOO_LARGE, ours, mtu=1300)
    host.heard()
    host.say(ACK, 1, ours + 5000)
    new, ours_new = host.opened(listener, port=2000, options=MSS)
    assert [host.info(x).snd_mss for x in (s, new, before)] == [1260, 1260, 1460]
    host.write(before, DATA)  # it finds out at its first time-out, from what is known
    assert max(sizes(host)) == 1460
    while host.counts().timeouts == 0:
        host.run(SECOND // 10)
    assert host.info(before).snd_mss == 1260
    host.say(ACK, 1, ours_before + 5000, port=1000)
    host.heard()
    host.run(11 * MINUTES)
    host.write(new, DATA)
    assert sizes(host)[0] == 1452
    host.say(ACK, 1, ours_new + 5000, port=2000)
    host.run(3 * MINUTES)
    host.write(before, DATA)
    assert max(sizes(host)) == 1452, "it has not tried that itself"
    assert host.counts().paths_tried == 1


def test_what_nobody_has_asked_for_an_hour_is_forgotten(host: TcpHost) -> None:
    shrunk(host)
    host.run(60 * MINUTES)
    new, _ = host.opened(0, port=2000, options=MSS)  # the listener is socket 0
    assert host.info(new).snd_mss == 1260
    host.run(11 * MINUTES)
    newer, _ = host.opened(0, port=3000, options=MSS)
    assert host.info(newer).snd_mss == 1460
