"""The kernel's TCP as the stack under test: it is the oracle for our scripts, where it follows the RFCs."""

from __future__ import annotations

from pathlib import Path

import pytest

from corelane.bench.packetdrill.linux import LinuxStack, missing
from corelane.bench.packetdrill.suite import Verdict, judge, judge_all

SCRIPTS = Path(__file__).parents[2] / "libos" / "net" / "tcp" / "scripts"
# One of each kind of event, and none that waits long. `corelane packetdrill FOLDER --stack linux --jobs 8` runs all.
CHOSEN = (
    *("handshake/passive-open", "handshake/simultaneous-open", "handshake/blocking-connect", "handshake/closed-ack"),
    *("options/timestamps-both", "data/request-and-response", "data/connection-counts", "data/blocking-read"),
    *("close/simultaneous", "close/time-wait-new-syn", "close/linger-zero", "reset/syn-in-window"),
    *("recovery/sack-two-holes", "sack/newest-first", "reassembly/three-holes", "paws/old-dropped"),
    *("icmp/connect-port-unreachable", "pmtu/shrinks", "ecn/echo-until-cwr", "urgent/inline", "calls/poll-data"),
)


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    lacks = missing()
    if lacks:
        pytest.skip(lacks)


@pytest.mark.root
def test_linux_passes_what_it_is_the_oracle_of():
    paths = [SCRIPTS / f"{name}.pkt" for name in CHOSEN]
    verdicts = list(judge_all(paths, LinuxStack, jobs=4, least_tolerance_us=20_000))
    wrong = [v.text() for v in verdicts if v.status not in ("passed", "late")]
    assert not wrong, "\n".join(wrong)
    late = [v for v in verdicts if v.status == "late"]
    assert len(late) < len(paths), "the machine is too busy to say anything"


def on_linux(tmp_path: Path, source: str) -> Verdict:
    """A script that the test has made up."""
    path = tmp_path / "a.pkt"
    path.write_text(source)
    return judge(path, LinuxStack, least_tolerance_us=20_000)


@pytest.mark.root
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("+0 > S. 0:0(0) ack 2 <mss 1460>", "its acknowledgement: expected 2, came 1"),
        ("+0 > S. 0:0(0) ack 1 <mss 1461>", "an option: expected mss 1461, came mss 1460"),
        ("+.3 > S. 0:0(0) ack 1 <mss 1460>", "too early"),
    ],
)
def test_linux_fails_what_it_does_not_do(tmp_path: Path, line: str, why: str):
    opening = (SCRIPTS / "handshake" / "passive-open.pkt").read_text().partition("+0 > S.")[0]
    verdict = on_linux(tmp_path, f"{opening}{line}\n")
    assert verdict.status in ("failed", "late")
    assert why in verdict.why
    assert verdict.came.startswith("+0")


@pytest.mark.root
def test_settings_that_the_kernel_lacks_are_named(tmp_path: Path):
    verdict = on_linux(tmp_path, "`sysctl -q net.ipv4.tcp_no_such=1`\n0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3\n")
    assert verdict.status == "unsupported"
    assert "net.ipv4.tcp_no_such" in verdict.needs[0]


@pytest.mark.root
def test_udp(tmp_path: Path):
    verdict = on_linux(
        tmp_path,
        """0 socket(..., SOCK_DGRAM, IPPROTO_UDP) = 3
        +0 bind(3, ..., ...) = 0
        +0 connect(3, ..., ...) = 0
        +0 write(3, ..., 100) = 100
        +0 > udp (100)
        +.01 < udp (50)
        +0 read(3, ..., 1000) = 50
        +0 write(3, ..., 10) = 10
        +0 > udp (11)""",
    )
    assert (verdict.line, verdict.why) == (9, "its length: expected 11, came 10")
