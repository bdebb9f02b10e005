"""Any script at all: it is read and run, or refused with a reason, on our own stack; nothing crashes the runner."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cltest import soak

from corelane.bench.packetdrill.corelane import corelane_stack
from corelane.bench.packetdrill.suite import judge

SCRIPTS = Path(__file__).parents[2] / "libos" / "net" / "tcp" / "scripts"
KNOWN = {"passed", "deviates", "failed", "unsupported", "unreadable"}
WORD = re.compile(r"[A-Za-z0-9_]+|\s+|.", re.S)
# What a number, or a word, is changed to.
ODD = ["0", "1", "-1", "65535", "65536", "4294967295", "4294967296", "99999", "9" * 40, "0xffffffff", "1e9", "...", ""]
ODD += ["SOCK_DGRAM", "MSG_PEEK", "F_GETFL", "TCP_CONGESTION", "SO_SNDBUF", "TCP_MAXSEG", "[[1]]", "{fd=3, events=1}"]
ODD += ['"reno"', 'inet_addr("1.2.3.4")', "htons(70000)", "sack 1:2", "TS val 1 ecr 1", "mp_capable", "win 0", "*"]


NUMBERS = [odd for odd in ODD if re.fullmatch(r"[-0-9a-fx]+", odd)]


def mixed(rng: random.Random, source: str, others: list[str]) -> str:
    """A script whose lines are missing, come twice, change places or are of others, with numbers that are odd."""
    lines = source.splitlines()
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(lines))
        match rng.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(rng.randrange(len(lines)), lines[at])
            case 2:
                lines.insert(at, rng.choice(rng.choice(others).splitlines() or [""]))
            case _:
                calls = [i for i, line in enumerate(lines) if re.search(r"\w\(.*=", line)] or [at]
                at = rng.choice(calls)
                places = list(re.finditer(r"(?<![\w.])\d+", lines[at]))
                if places:
                    place = rng.choice(places)
                    lines[at] = lines[at][: place.start()] + rng.choice(NUMBERS) + lines[at][place.end() :]
        lines = lines or [""]
    return "\n".join(lines)


def changed(rng: random.Random, source: str, others: list[str]) -> str:
    """A script in which some words are others, are missing, come twice or change places."""
    words = WORD.findall(source)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(words))
        match rng.randrange(6):
            case 0:
                del words[at]
            case 1:
                words.insert(at, words[at])
            case 2:
                words[at] = rng.choice(words)
            case 3 | 4:
                words[at] = rng.choice(ODD)
            case _:
                lines = rng.choice(others).splitlines(keepends=True)
                begin = rng.randrange(len(lines))
                words[at:at] = WORD.findall("\n" + "".join(lines[begin : begin + rng.randint(1, 4)]))
        words = words or [" "]
    return "".join(words)


def scripts_of(seed: int, n: int) -> Iterator[str]:
    rng = random.Random(seed)
    others = [path.read_text() for path in sorted(SCRIPTS.rglob("*.pkt"))]
    for _ in range(n):
        yield rng.choice((changed, mixed, mixed))(rng, rng.choice(others), others)


@pytest.mark.soak(short=True, takes_s=200)
def test_nothing_crashes_the_runner(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "a.pkt"
    for source in scripts_of(seed, soak.examples(250, 30_000)):
        path.write_text(source)
        verdict = judge(path, corelane_stack)
        assert verdict.status in KNOWN, "\n".join((verdict.why, *verdict.log, source))


OPEN = """0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
+0 bind(3, ..., ...) = 0
+0 listen(3, 1) = 0
+0 < S 0:0(0) win 1000 <mss 1000>
+0 > S. 0:0(0) ack 1 <...>
+0 < . 1:1(0) ack 1 win 1000
+0 accept(3, ..., ...) = 4
"""
# (line, what the verdict says)
ODDITIES = [
    ("+0 socket(3) = 5", "socket with 1 arguments"),
    ("+0 read(4, ..., 999999999999) = 1", "where a length is expected"),
    ("+0 write(4, ..., 999999999999) = 1", "where a length is expected"),
    ("+0 close(99999999999999999999) = 0", "where an int is expected"),
    ("+0 < . 1:65536(65535) ack 1 win 1000", "do not fit into a packet"),
    (f"+0 < . 1:1(0) ack 1 win 1 <sack {'1:2 ' * 60}>", "bytes of options do not fit into a header"),
    (f"+0 < S 1:1(0) <FO {'ab' * 300}>", "bytes of options do not fit into a header"),
    ("+0 < icmp unreachable frag_needed mtu 70000 [1:1001(1000)]", "does not fit into an ICMP message"),
    ("+0 < icmp unreachable frag_needed mtu 600 [1:65536(65535)]", "do not fit into a packet"),
    ("+999999999 close(4) = 0", "longer than a script may last"),
    (f"+0 close({'9' * 5000}) = 0", "a number of 5000 digits"),
    (f"+0 close({'[' * 5000}", "nested deeper"),
    (f"+0 close({'a=' * 5000}1) = 0", "nested deeper"),
    (f"+0 %{{ assert {'(' * 500}1{')' * 500} }}%", "not Python"),
    (f"+0 %{{ assert {'1+' * 40_000}1 }}%", "more than 10000 characters"),
    (f"+0 %{{ assert {'not ' * 2400}1 }}%", "code"),
    ("+0 %{ assert int('x') }%", "in code"),
    ("+0 %{ assert min(1) + ~'a' }%", "in code"),
    ("+0 %{ assert (1, 2) * 99999999 }%", "in code"),
    ("+0 setsockopt(4, SOL_SOCKET, SO_SNDBUF, [-1], 4) = 0", "SO_SNDBUF of -1 bytes"),
    ("+0 setsockopt(4, SOL_TCP, TCP_DEFER_ACCEPT, [1], 4) = 0", "setsockopt of SOL_TCP, TCP_DEFER_ACCEPT"),
    ("+0 recv(4, ..., 10, MSG_OOB) = 1", "recv with MSG_OOB"),
    ("+0 send(4, ..., 10, MSG_ZEROCOPY) = 10", "the flag MSG_ZEROCOPY"),
    ("+0 > S. 0:0(0) ack 1 <FO ab,nop,nop>", "the TCP option FO"),
    ("+0 < S 0:0(0) <mp_capable a b>", "options of MPTCP (mp_capable)"),
    ("+0 < S 0:0(0) <dss dack4=1>", "options of MPTCP (dss)"),
    ('+0 connect(4, {sa_family=AF_INET, sin_port=htons(1), sin_addr=inet_addr("x")}, 16) = 0', "the address"),
    ("+0 accept(3, ..., ...) = 4 (a note", "words in brackets"),
]


@pytest.mark.parametrize(("line", "says"), ODDITIES, ids=[line[3:25] for line, _ in ODDITIES])
def test_an_oddity_is_told(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "a.pkt"
    path.write_text(f"{OPEN}{line}\n")
    verdict = judge(path, corelane_stack)
    assert verdict.status in KNOWN, "\n".join((verdict.why, *verdict.log))
    assert says in " ".join((verdict.why, *verdict.needs))


@pytest.mark.parametrize(
    "option",
    [
        *("--mtu=1", "--mtu=-5", "--mtu=x", "--bind_port=99999", "--local_ip=fd3d::1", "--local_ip=here", "--mss=0"),
        *("--tolerance_percent=nan", "--ip_version=ipv6", "--tolerance_usecs=-1", "--remote_ip=::1"),
    ],
)
def test_a_wrong_setting_is_told(tmp_path: Path, option: str) -> None:
    path = tmp_path / "a.pkt"
    path.write_text(f"{option}\n{OPEN}")
    verdict = judge(path, corelane_stack)
    assert verdict.status in ("unsupported", "unreadable"), verdict
    assert option.split("=")[0].removeprefix("--") in " ".join((verdict.why, *verdict.needs)) or verdict.line == 1
