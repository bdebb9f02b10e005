"""The language: what is read is what was meant, and what is printed reads as the same."""

from __future__ import annotations

import pytest
from cltest import soak
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.bench.packetdrill import model as m
from corelane.bench.packetdrill import text
from corelane.bench.packetdrill.parse import parse
from corelane.bench.packetdrill.tokens import NotSupported, ScriptError


def one(line: str) -> m.Event:
    """The only event of a script."""
    (event,) = parse(line).events
    return event


def test_a_script_has_options_commands_and_events():
    script = parse(
        """--tolerance_usecs=10000
        --ip_version=ipv4-mapped-ipv6 --remote_ip=192.0.2.7/24
        --strict_segments
        // a comment
        `sysctl -q net.ipv4.tcp_sack=0`
        # another
        0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3 /* and
        one */
        +0 `sleep 1`
        +.5 close(3) = 0
        `true`"""
    )
    assert script.options == (
        ("tolerance_usecs", "10000"),
        ("ip_version", "ipv4-mapped-ipv6"),
        ("remote_ip", "192.0.2.7/24"),
        ("strict_segments", None),
    )
    assert script.init == m.Command("sysctl -q net.ipv4.tcp_sack=0")
    assert script.cleanup == m.Command("true")
    assert [type(e.action) for e in script.events] == [m.Call, m.Command, m.Call]
    assert [e.line for e in script.events] == [7, 9, 10]


@pytest.mark.parametrize(
    ("line", "time"),
    [
        ("0", m.Time(0)),
        ("1.5", m.Time(1_500_000)),
        ("+.1", m.Time(100_000, True)),
        ("+0.000001", m.Time(1, True)),
        ("*", m.Time(any=True)),
        ("0.1~0.2", m.Time(100_000, end_us=200_000)),
        ("+0~+.05", m.Time(0, True, 50_000)),
    ],
)
def test_times(line: str, time: m.Time):
    assert one(f"{line} > . 1:1(0) ack 1").time == time


def test_segments_have_all_parts_that_the_syntax_has():
    event = one(
        "+0 > [ect0] 8080 > 49152 FP. 1:11(10) ack 5 win 100 urg 3 "
        "<mss 1460,sackOK,TS val 100 ecr 7,nop,wscale 7,sack 1:2 3:4,FO 12ab,eol>"
    )
    assert event.action == m.TcpPacket(
        m.OUT,
        "FP.",
        1,
        11,
        5,
        100,
        3,
        (
            m.Mss(1460),
            m.SackOk(),
            m.Timestamp(100, 7),
            m.Nop(),
            m.Wscale(7),
            m.Sack(((1, 2), (3, 4))),
            m.FastOpen("12ab"),
            m.Eol(),
        ),
        m.IpInfo(ecn="ect0"),
        (8080, 49152),
    )
    assert one("+0 > . 1:1(0) <...>").action == m.TcpPacket(m.OUT, ".", 1, 1, options=None)
    assert one("+0 < - 1:1(0)").action == m.TcpPacket(m.IN, "", 1, 1)
    assert one("+0 < P.5 1:1(0) ack 1").action == m.TcpPacket(m.IN, "P.", 1, 1, 1, ace=5)
    assert one("+0 < (tos 0x1c) . 1:1(0) ack 1").action == m.TcpPacket(m.IN, ".", 1, 1, 1, ip=m.IpInfo(tos=28))


def test_other_packets():
    assert one("0 > udp (10)").action == m.UdpPacket(m.OUT, 10)
    assert one("0 < udp 1 > 2 (10)").action == m.UdpPacket(m.IN, 10, ports=(1, 2))
    assert one("0 < icmp unreachable frag_needed mtu 1400 [1:1461(1460)]").action == m.IcmpPacket(
        m.IN, "unreachable", "frag_needed", 1400, None, m.Echoed("tcp", 1, 1460)
    )
    # As older scripts have it.
    assert one("0 < [1:1461(1460)] icmp unreachable frag_needed mtu 1400").action == m.IcmpPacket(
        m.IN, "unreachable", "frag_needed", 1400, None, m.Echoed("tcp", 1, 1460)
    )
    assert one("0 < icmp unreachable [udp (100)]").action == m.IcmpPacket(
        m.IN, "unreachable", echoed=m.Echoed("udp", 0, 100)
    )


def test_calls_with_blocking_times_notes_and_structures():
    event = one("+0...0.100 read(4, ..., 2000) = -1 EAGAIN (Resource temporarily unavailable)")
    assert event.time == m.Time(0, True)
    assert event.action == m.Call(
        "read",
        (m.Int(4), m.Anything(), m.Int(2000)),
        m.Int(-1),
        100_000,
        "EAGAIN",
        "Resource temporarily unavailable",
    )
    assert one("0 fcntl(3, F_GETFL) = 0x2 (flags O_RDWR)").action == m.Call(
        "fcntl", (m.Int(3), m.Word("F_GETFL")), m.Int(2, True), note="flags O_RDWR"
    )
    call = one(
        "0 poll([{fd=4, events=POLLIN|POLLOUT, revents=POLLIN}], 1, 0) = 1",
    ).action
    assert isinstance(call, m.Call)
    (array, *_) = call.arguments
    assert isinstance(array, m.Array)
    (entry,) = array.items
    assert isinstance(entry, m.Struct)
    assert entry.get("events") == m.Or((m.Word("POLLIN"), m.Word("POLLOUT")))
    assert entry.get("nothing") is None
    message = one(
        "0 recvmsg(4, {msg_name(...)=..., msg_iov(1)=[{..., 1000}], msg_flags=0}, 0) = 1000",
    ).action
    assert isinstance(message, m.Call)
    assert isinstance(message.arguments[1], m.Struct)
    address = '0 connect(3, {sa_family = AF_INET, sin_port = htons(80), sin_addr = inet_addr("1.2.3.4")}, 16) = 0'
    connect = one(address).action
    assert isinstance(connect, m.Call)
    assert isinstance(connect.arguments[1], m.Struct)
    assert connect.arguments[1].get("sin_port") == m.Invoke("htons", (m.Int(80),))


def test_defined_names_stand_for_what_they_were_defined_as():
    script = parse('--define=PROTO=IPPROTO_TCP --define=CC="reno" 0 socket(..., SOCK_STREAM, PROTO) = 3\n+0 f(CC) = 0')
    first, second = (event.action for event in script.events)
    assert isinstance(first, m.Call)
    assert isinstance(second, m.Call)
    assert first.arguments[2] == m.Word("IPPROTO_TCP")
    assert second.arguments == (m.Text("reno"),)


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("0 > . 1:11(9) ack 1", 1, "are 10 bytes and not 9"),
        ("0 socket(...) 3", 1, "expected '='"),
        ("\n\n+0 > Q 0:0(0)", 3, "flags of a TCP segment"),
        ("0 `never ends", 1, "has no end"),
        ("0 %{ assert", 1, "has no end"),
        ("/* never ends", 1, "has no end"),
        ("* < S 0:0(0)", 1, "expected (`>`) alone"),
        ("+0~+1 close(3) = 0", 1, "expected (`>`) alone"),
        ("2~1 > . 1:1(0)", 1, "ends before it begins"),
        ("+1~2 > . 1:1(0)", 1, "plus sign"),
        ("-1 > . 1:1(0)", 1, "negative"),
        ("0 < . 1:1(0) <...>", 1, "expected (`>`) alone"),
        ("0 < . 1:1(0) win 65536", 1, "65536 as window"),
        ("0 < S 0:0(0) <mms 1>", 1, "a TCP option"),
        ("0 close(3) = -1 EBADF", 1, "a note in brackets"),
        ("0 < S 0:0(0) <FO xyz>", 1, "in hexadecimal"),
        ("0 < [ect01] S 0:0(0)", 1, "expected (`>`) alone"),
        ("close(3) = 0", 1, "a time in seconds"),
        ("0 < S.8 0:0(0)", 1, "from 0 to 7"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(source: str, line: int, says: str):
    with pytest.raises(ScriptError) as error:
        parse(source)
    assert error.value.line == line
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("source", "needs"),
    [
        ("0 > gre: ipv4 1.1.1.1 > 2.2.2.2: . 1:1(0)", "packets inside others (gre)"),
        ("0 > (flowlabel 0x1) . 1:1(0)", "flow labels"),
        ("0 < . 1:1(0) ack 1 <nop> {mut tcp mss}", "fuzzing"),
        ("0 > . 1:1(0) <ECN e1b 1>", "options of AccECN"),
    ],
)
def test_what_is_packetdrills_and_not_ours_is_named(source: str, needs: str):
    with pytest.raises(NotSupported) as error:
        parse(source)
    assert needs in error.value.needs
    assert error.value.line == 1


# --- what is printed reads as the same ---

U16, U32 = st.integers(0, 65535), st.integers(0, 2**32 - 1)
names = st.from_regex(r"[A-Z][A-Z0-9_]{1,8}", fullmatch=True)
atoms = st.one_of(
    st.just(m.Anything()),
    st.builds(m.Int, st.integers(-(2**31), 2**31)),
    st.builds(m.Int, st.integers(0, 2**32), st.just(True)),
    names.map(m.Word),
    st.builds(m.Text, st.from_regex(r"[a-z .:]{0,8}", fullmatch=True), st.booleans()),
)
plain = st.one_of(atoms, st.builds(m.Or, st.lists(names.map(m.Word), min_size=2, max_size=3).map(tuple)))
expressions: st.SearchStrategy[m.Expression] = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.builds(m.Array, st.lists(inner, max_size=3).map(tuple)),
        st.builds(m.Struct, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(m.Struct, st.lists(st.builds(m.Field, names, inner), min_size=1, max_size=3).map(tuple)),
        st.builds(m.Struct, st.lists(st.builds(m.Field, names, inner, atoms), min_size=1, max_size=2).map(tuple)),
        st.builds(m.Invoke, names, st.lists(atoms, max_size=2).map(tuple)),
    ),
    max_leaves=6,
)
blobs = st.binary(max_size=8).map(bytes.hex)
options = st.one_of(
    st.just(m.Nop()),
    st.just(m.Eol()),
    st.just(m.SackOk()),
    st.builds(m.Mss, U16),
    st.builds(m.Wscale, st.integers(0, 255)),
    st.builds(m.Sack, st.lists(st.tuples(U32, U32), min_size=1, max_size=4).map(tuple)),
    st.builds(m.Timestamp, U32, U32),
    st.builds(m.FastOpen, blobs, st.booleans()),
    st.builds(m.Md5, st.binary(min_size=16, max_size=16).map(bytes.hex)),
)
ip_infos = st.one_of(
    st.just(m.IpInfo()),
    st.builds(m.IpInfo, ecn=st.sampled_from(["noecn", "ect0", "ect1", "ce"])),
    st.builds(m.IpInfo, tos=st.integers(0, 255)),
    st.builds(m.IpInfo, ttl=st.integers(0, 255)),
)
ports = st.one_of(st.none(), st.tuples(U16, U16))
maybe16 = st.one_of(st.none(), U16)


def maybe(what: st.SearchStrategy[str]) -> st.SearchStrategy[str | None]:
    """It, or nothing."""
    return st.one_of(st.none(), what)


@st.composite
def segments(draw: st.DrawFn) -> m.TcpPacket:
    """A segment with any parts."""
    flags = "".join(sorted(draw(st.sets(st.sampled_from("FSRPEWU"))))) + draw(st.sampled_from(["", "."]))
    ace = draw(st.one_of(st.none(), st.integers(0, 7))) if flags.endswith(".") else None
    seq, length = draw(st.integers(0, 2**32 - 70000)), draw(U16)
    direction = draw(st.sampled_from("<>"))
    shown = draw(st.lists(options, max_size=4)) if direction == "<" or draw(st.booleans()) else None
    return m.TcpPacket(
        *(direction, flags, seq, seq + length, draw(st.one_of(st.none(), U32)), draw(maybe16), draw(maybe16)),
        *(None if shown is None else tuple(shown), draw(ip_infos), draw(ports), ace),
    )


words = st.from_regex(r"[a-z_]{3,12}", fullmatch=True).filter(lambda w: w not in ("mtu", "udp", "raw"))
echoed = st.one_of(
    st.none(),
    st.builds(m.Echoed, st.just("tcp"), st.integers(0, 2**31), U16),
    st.builds(m.Echoed, st.sampled_from(["udp", "raw"]), st.just(0), U16),
)
packets = st.one_of(
    segments(),
    st.builds(m.UdpPacket, st.sampled_from("<>"), U16, ip_infos, ports),
    st.builds(m.IcmpPacket, st.sampled_from("<>"), words, maybe(words), maybe16, maybe16, echoed, ip_infos),
)
notes = st.lists(words, min_size=1, max_size=3).map(" ".join)
calls = st.one_of(
    st.builds(m.Call, words, st.lists(expressions, max_size=4).map(tuple), plain, st.one_of(st.none(), U32)),
    st.builds(m.Call, words, st.lists(expressions, max_size=3).map(tuple), st.just(m.Int(-1)), st.none(), names, notes),
)
commands = st.from_regex(r"[a-z][a-z0-9=./\n -]{0,20}", fullmatch=True).map(m.Command)
codes = st.from_regex(r"[a-z]([a-z0-9=<>+ \n]*[a-z0-9])?", fullmatch=True).map(m.Code)
times = st.builds(m.Time, U32, st.booleans())


@st.composite
def events(draw: st.DrawFn) -> m.Event:
    """An event whose time fits its action."""
    action = draw(st.one_of(packets, calls, codes))
    time = draw(times)
    expected = not isinstance(action, m.Call | m.Code) and action.direction == m.OUT
    if expected and draw(st.booleans()):
        end = draw(st.one_of(st.none(), st.integers(time.us, 2**33)))
        time = m.Time(any=True) if end is None else m.Time(time.us, time.relative, end)
    return m.Event(time, action)


scripts = st.builds(
    m.Script,
    st.lists(st.tuples(words, maybe(names)), max_size=2).map(tuple),
    st.one_of(st.none(), commands),
    st.lists(events(), max_size=4).map(tuple),
    st.one_of(st.none(), commands),
).filter(lambda s: s.events or not s.cleanup)


@pytest.mark.soak(short=True, takes_s=30)
@settings(max_examples=soak.examples(15, 500), deadline=None)
@given(scripts)
def test_what_is_printed_reads_as_the_same(script: m.Script):
    assert parse(text.script_text(script)) == script


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='0123+~.*<> SF:()[]{}=,"`%/#-abcackwinmss\n', max_size=60))
def test_any_text_is_read_or_refused_with_a_line(source: str):
    try:
        parse(source)
    except (ScriptError, NotSupported) as error:
        assert error.line >= 1
