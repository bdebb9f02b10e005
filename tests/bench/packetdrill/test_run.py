"""The runner on a stack that does as a test tells it, by a clock of the test: each difference is found and named."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from corelane.bench.packetdrill import flow, suite, wire
from corelane.bench.packetdrill import model as m
from corelane.bench.packetdrill.parse import parse
from corelane.bench.packetdrill.run import Result, needs, run
from corelane.bench.packetdrill.settings import Settings, settings
from corelane.bench.packetdrill.stack import Outcome
from corelane.bench.packetdrill.tokens import NotSupported
from corelane.cli import packetdrill

ISN = 4_000_000_000
LOCAL = ("192.168.0.1", 8080)
Takes = dict[str, list[tuple[int, Outcome]]]


class Told:
    """stack.Stack: answers a SYN, takes and gives what calls ask, and sends what `sends` lists, each at its time."""

    name = "told"
    real_time = False
    operations = frozenset({"socket", "bind", "listen", "accept", "receive", "send", "setsockopt", "close"})
    tcp_options = frozenset({m.Nop, m.Mss})
    info_fields = frozenset({"tcpi_snd_cwnd"})

    def __init__(self, *sends: tuple[int, m.TcpPacket], takes: Takes | None = None) -> None:
        self.us = 1_000_000
        self.begun = self.us
        self.sends = list(sends)
        self.takes = takes or {}
        self.remote = ("192.0.2.1", 0)
        self.isn = 0
        self.set: list[tuple[str, str]] = []
        self.closed = False

    def now_us(self) -> int:
        return self.us

    def wait_until(self, when_us: int) -> None:
        self.us = max(self.us, when_us)

    def inject(self, packet: bytes) -> None:
        found = wire.read(packet)
        assert isinstance(found, wire.Segment)
        if found.flags & wire.FLAGS["S"]:
            self.remote, self.isn = found.source, found.seq

    def next_packet(self, deadline_us: int) -> tuple[int, bytes] | None:
        if not self.sends or self.begun + self.sends[0][0] > deadline_us:
            self.us = max(self.us, deadline_us)
            return None
        at, p = self.sends.pop(0)
        self.us = max(self.us, self.begun + at)
        syn = p.has("S")
        seq = ISN + p.seq & 0xFFFFFFFF
        flags = sum(wire.FLAGS[c] for c in p.flags)
        ack = (p.ack or 0) + self.isn
        data = p_data(p)
        segment = wire.Segment(LOCAL, self.remote, seq, ack, flags, p.win or 0, p.urg or 0, p.options or (), data)
        assert not syn or p.length == 0
        return self.begun + at, wire.write_tcp(segment)

    def begin(self, waits: bool, name: str, *arguments: Any) -> Told.Call:
        given = self.takes.get(name)
        if given:
            after, outcome = given.pop(0)
            return Told.Call(self, self.us + after, outcome)
        value = {"socket": 3, "accept": 4, "send": len(arguments[1]) if name == "send" else 0}.get(name, 0)
        data = flow.pattern(0, arguments[1]) if name == "receive" else b""
        return Told.Call(self, self.us, Outcome(len(data) or value, data=data, address=self.remote))

    class Call:
        """stack.Pending: done at a time."""

        def __init__(self, stack: Told, at: int, outcome: Outcome) -> None:
            self.stack, self.at, self.found = stack, at, outcome

        def outcome(self, deadline_us: int) -> Outcome | None:
            if self.at > max(deadline_us, self.stack.us):
                return None
            self.stack.wait_until(self.at)
            o = self.found
            return Outcome(o.value, o.errno, o.data, o.address, o.numbers, self.at)

    def info(self, handle: int) -> dict[str, int]:
        return {"tcpi_snd_cwnd": 10}

    def sysctl(self, name: str, value: str) -> None:
        if name != "net.ipv4.tcp_sack":
            raise NotSupported(f"sysctl {name}")
        self.set.append((name, value))

    def close(self) -> None:
        self.closed = True


def p_data(p: m.TcpPacket) -> bytes:
    """The bytes that a right stack sends there."""
    return flow.pattern(p.seq - 1, p.length)


def out(flags: str, seq: int, length: int, ack: int | None, **more: Any) -> m.TcpPacket:
    """What the stack sends."""
    return m.TcpPacket(m.OUT, flags, seq, seq + length, ack, **more)


SYN_ACK = out("S.", 0, 0, 1, options=(m.Mss(1460),))
OPEN = """0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 1000 <mss 1000>
+0 > S. 0:0(0) ack 1 <mss 1460>
+0 < . 1:1(0) ack 1 win 1000
+0 accept(3, ..., ...) = 4
"""


def tried(rest: str, *sends: tuple[int, m.TcpPacket], **takes: list[tuple[int, Outcome]]) -> Result:
    """The script that opens a connection and goes on with `rest`, on a stack that sends `sends`."""
    script = parse(OPEN + rest)
    stack = Told((0, SYN_ACK), *sends, takes=takes)
    assert needs(script, stack) == []
    return run(script, stack, settings(script))


def test_a_script_that_holds_passes():
    result = tried(
        """+.1 write(4, ..., 2500) = 2500
        +0 > P. 1:2501(2500) ack 1
        +.1 < P. 1:101(100) ack 2501 win 1000
        +0~+.05 > . 2501:2501(0) ack 101
        +.1 read(4, ..., 100) = 100
        +0 %{ assert tcpi_snd_cwnd == 10 }%
        * > F. 2501:2501(0) ack 101 win 7""",
        (100_000, out(".", 1, 1000, 1)),
        (100_000, out(".", 1001, 1000, 1)),
        (100_100, out("P.", 2001, 500, 1)),
        (240_000, out(".", 2501, 0, 101)),
        (9_000_000, out("F.", 2501, 0, 101, win=7)),
    )
    assert result.failure is None
    assert len(result.log) == 15


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (out(".", 1, 1000, 1), "its flags: expected ACK+PSH, came ACK"),
        (out("P.", 2, 1000, 1), "its sequence number: expected 1, came 2"),
        (out("P.", 1, 1001, 1), "its length: expected 1000, came 1001"),
        (out("P.", 1, 1000, 2), "its acknowledgement: expected 1, came 2"),
        (out("P.", 1, 1000, 1, win=6), "its window: expected 5, came 6"),
        (out("PU.", 1, 1000, 1, win=5, urg=1), "its flags: expected ACK+PSH, came ACK+URG+PSH"),
        (out("P.", 1, 1000, 1, win=5, options=(m.Nop(),) * 4), "an option is too many: nop"),
        (out("P.", 1, 0, 1, win=5), "its length: expected 1000, came 0"),
    ],
)
def test_what_came_instead_is_said(sent: m.TcpPacket, why: str):
    result = tried("+0 write(4, ..., 1000) = 1000\n+0 > P. 1:1001(1000) ack 1 win 5", (0, sent))
    assert result.failure is not None
    assert result.failure.why == why
    assert result.failure.line == 9
    assert result.failure.expected == "+0 > P. 1:1001(1000) ack 1 win 5"
    assert result.failure.came.startswith("+0 > ")


@pytest.mark.parametrize(
    ("line", "at", "why"),
    [
        ("+.2 > . 1:1(0) ack 1", 300_000, "the packet came 0.100000 s too late"),
        ("+.2 > . 1:1(0) ack 1", 100_000, "the packet came 0.100000 s too early"),
        ("+.2 > . 1:1(0) ack 1", 224_000, None),  # an eighth of 0.2 s
        ("+.2 > . 1:1(0) ack 1", 226_000, "the packet came 0.026000 s too late"),
        ("+.1~+.2 > . 1:1(0) ack 1", 150_000, None),
        (".1~.2 > . 1:1(0) ack 1", 250_000, "the packet came 0.050000 s too late"),
        ("+.2 > . 1:1(0) ack 1", 9_000_000, "no packet came"),
        ("* > . 1:1(0) ack 1", 9_000_000, None),
        ("* > . 1:1(0) ack 1", 90_000_000, "no packet came"),
    ],
)
def test_times(line: str, at: int, why: str | None):
    failure = tried(line, (at, out(".", 1, 0, 1))).failure
    assert (failure.why if failure else None) == why


def test_a_wrong_byte_is_found():
    stack = Told((0, SYN_ACK), (0, out(".", 1, 10, 1)))
    script = parse(OPEN + "+0 write(4, ..., 5) = 5\n+0 > . 1:11(10) ack 1")
    failure = run(script, stack, settings(script)).failure
    assert failure is not None
    assert failure.why == "it carries 5 bytes more than were written"
    failure = tried("+0 read(4, ..., 3) = 3", receive=[(0, Outcome(3, data=b"abc"))]).failure
    assert failure is not None
    assert failure.why.startswith("byte 1 of the stream is 0x61")


def test_results_of_calls():
    again = {"receive": [(0, Outcome(-1, errno.EAGAIN))]}
    assert tried("+0 read(4, ..., 3) = -1 EAGAIN (no data)", **again).failure is None
    failure = tried("+0 read(4, ..., 3) = -1 EAGAIN (no data)", receive=[(0, Outcome(-1, errno.EPIPE))]).failure
    assert failure is not None
    assert (failure.why, failure.came) == ("expected -1 EAGAIN, came -1 EPIPE", "read(4, ..., 3) = -1 EPIPE")
    failure = tried("+0 write(4, ..., 3) = 3", send=[(0, Outcome(2))]).failure
    assert failure is not None
    assert failure.why == "expected 3, came 2"


def test_calls_that_wait():
    got = Outcome(10, data=flow.pattern(0, 10))
    line = "+0...0.2 read(4, ..., 10) = 10\n+.2 < P. 1:11(10) ack 1 win 100\n+.1 close(4) = 0"
    assert tried(line, receive=[(200_000, got)]).failure is None
    failure = tried(line, receive=[(50_000, got)]).failure
    assert failure is not None
    assert failure.why == "it returned at 0.050000 and not at 0.200000"
    assert failure.expected.startswith("+0...0.200000 read")
    failure = tried(line, receive=[(900_000, got)]).failure
    assert failure is not None
    assert failure.why == "the call has not returned"
    failure = tried("+0 read(4, ..., 10) = 10", receive=[(200_000, got)]).failure
    assert failure is not None
    assert "the script has no time" in failure.why


@pytest.mark.parametrize(
    ("flags", "sent", "why"),
    [
        (("P.", "P."), (".", "P."), None),  # 1:1001 ends before all that was written
        ((".", "P."), ("P.", "P."), None),
        ((".", "."), (".", "P."), None),
        ((".", "P."), (".", "."), "its flags: expected ACK+PSH, came ACK"),
    ],
)
def test_a_push_counts_where_all_ends(flags: tuple[str, str], sent: tuple[str, str], why: str | None):
    rest = f"+0 write(4, ..., 1500) = 1500\n+0 > {flags[0]} 1:1001(1000) ack 1\n+0 > {flags[1]} 1001:1501(500) ack 1"
    failure = tried(rest, (0, out(sent[0], 1, 1000, 1)), (0, out(sent[1], 1001, 500, 1))).failure
    assert (failure.why if failure else None) == why


def test_an_assertion_that_fails_is_a_failure():
    failure = tried("+0 %{ assert tcpi_snd_cwnd == 9, tcpi_snd_cwnd }%").failure
    assert failure is not None
    assert "tcpi_snd_cwnd is 10" in failure.why


def test_what_code_sets_later_code_reads():
    rest = "+0 %{ MOST = 10 }%\n+0 %{ assert tcpi_snd_cwnd == MOST, MOST }%\n"
    assert tried(rest).failure is None
    failure = tried(rest + "+0 %{ assert MOST == 9, 'most=%d' % MOST }%").failure
    assert failure is not None
    assert "most=10" in failure.why
    early = parse(OPEN + "+0 %{ assert tcpi_snd_cwnd == MOST }%\n+0 %{ MOST = 10 }%\n")
    assert [what for _, what in needs(early, Told())] == ["the field MOST of TCP_INFO"]


def test_all_that_is_lacking_is_named_before_anything_runs():
    script = parse(
        """0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
        +0 splice(3) = 0
        +0 poll([{fd=3, events=POLLIN}], 1, 0) = 0
        +0 %{ import os }%
        +0 %{ assert tcpi_rtt > 0 }%
        +0 `sysctl -q net.ipv4.tcp_sack=0`
        +0 setsockopt(3, SOL_TCP, TCP_NEW, [1], 4) = 0
        +0 `sleep 1`
        +0 `reboot`
        +0 close(3) = 0"""
    )
    assert [what.split("`")[0] for _, what in needs(script, Told())] == [
        "the system call splice",
        "the system call poll",
        "Import in code",
        "alias in code",
        "the field tcpi_rtt of TCP_INFO",
        "the constant TCP_NEW",
        "the command ",
    ]


def judged(tmp_path: Path, source: str) -> suite.Verdict:
    """A script from a file."""
    path = tmp_path / "a.pkt"
    path.write_text(source)
    return suite.judge(path, lambda chosen: Told((0, SYN_ACK)))


def test_verdicts(tmp_path: Path):
    assert judged(tmp_path, OPEN).status == "passed"
    failed = judged(tmp_path, OPEN + "+0 > . 1:1(0) ack 1")
    assert (failed.status, failed.line, failed.why) == ("failed", 8, "no packet came")
    assert failed.text().splitlines()[0].endswith("a.pkt:8: failed: no packet came")
    assert judged(tmp_path, "// Told deviates: it is silent\n" + OPEN + "+0 > . 1:1(0) ack 1").status == "deviates"
    assert judged(tmp_path, "// Linux deviates\n" + OPEN + "+0 > . 1:1(0) ack 1").status == "failed"
    unreadable = judged(tmp_path, OPEN + "+0 >")
    assert (unreadable.status, unreadable.line) == ("unreadable", 8)
    for source, needed in (
        ("--ip_version=ipv6\n" + OPEN, "--ip_version=ipv6"),
        ("`sysctl -q net.ipv4.tcp_dsack=0`\n" + OPEN, "sysctl net.ipv4.tcp_dsack"),
        ("`reboot`\n" + OPEN, "the command `reboot`"),
        (OPEN + "+0 setsockopt(4, SOL_TCP, TCP_NEW, [1], 4) = 0", "the constant TCP_NEW (line 8)"),
        (OPEN + "+0 socket(AF_UNIX, SOCK_STREAM, 0) = 5", "sockets of AF_UNIX (line 8)"),
        (OPEN + "+0 < icmp teapot", "the ICMP message teapot (line 8)"),
    ):
        verdict = judged(tmp_path, source)
        assert (verdict.status, verdict.needs) == ("unsupported", (needed,)), verdict


@pytest.mark.parametrize(
    ("held", "why"),
    [(None, "No such file or directory"), (b"// one\n// \xff\n", "line 2 is no UTF-8: it has the byte 0xff")],
)
def test_why_a_file_is_no_script_is_said_in_words(tmp_path: Path, held: bytes | None, why: str):
    path = tmp_path / "none.pkt"
    if held is not None:
        path.write_bytes(held)
    verdict = suite.judge(path, lambda chosen: Told())
    assert (verdict.status, verdict.why) == ("unreadable", why)


def test_the_command_says_the_worst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    import argparse

    monkeypatch.setattr(packetdrill, "_make", lambda stack: lambda chosen: Told((0, SYN_ACK)))
    parser = argparse.ArgumentParser()
    packetdrill.add_arguments(parser)

    def code(*sources: str) -> int:
        for path in tmp_path.glob("*.pkt"):
            path.unlink()
        for i, source in enumerate(sources):
            (tmp_path / f"{i}.pkt").write_text(source)
        return packetdrill.run(parser.parse_args([str(tmp_path), "--json", "-D", "KIND=SOCK_STREAM"]))

    lacking, failing, broken = "`reboot`\n" + OPEN, OPEN + "+0 > . 1:1(0) ack 1", "+"
    assert code(OPEN.replace("SOCK_STREAM", "KIND")) == 0
    assert code(OPEN, lacking) == packetdrill.UNSUPPORTED
    assert code(lacking, broken) == packetdrill.UNREADABLE
    assert code(lacking, failing, broken) == packetdrill.FAILED
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document["counts"] == dict.fromkeys(("failed", "unreadable", "unsupported"), 1) | dict.fromkeys(
        ("passed", "deviates", "broken", "late"), 0
    )
    assert [entry["status"] for entry in document["scripts"]] == ["unsupported", "failed", "unreadable"]


def test_settings_come_from_the_script_and_the_command_line():
    script = parse("--tolerance_usecs=500\n--tolerance_percent=0\n--mtu=9000\n--remote_ip=192.0.2.9/24\n" + OPEN)
    assert settings(script) == Settings(500, 0.0, mtu=9000, remote_ip="192.0.2.9")
    assert settings(script, 9000).tolerance_us == 9000
    assert settings(parse("--mss=1000\n" + OPEN)) == Settings()  # what a NIC puts together changes no MSS of ours
    with pytest.raises(NotSupported, match="--wire_client"):
        settings(parse("--wire_client\n" + OPEN))
