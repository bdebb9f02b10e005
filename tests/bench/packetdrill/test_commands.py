"""Shell commands of scripts: understood, or refused by name; none is run."""

from __future__ import annotations

import pytest

from corelane.bench.packetdrill.commands import DEFAULTS, Meaning, understand
from corelane.bench.packetdrill.tokens import NotSupported


@pytest.mark.parametrize(
    ("command", "sysctls"),
    [
        ("sysctl -q net.ipv4.tcp_sack=0", (("net.ipv4.tcp_sack", "0"),)),
        ('sysctl -w -q net.ipv4.tcp_rmem="4096 8192 16384"', (("net.ipv4.tcp_rmem", "4096 8192 16384"),)),
        ("../common/set_sysctls.py /proc/sys/net/ipv4/tcp_timestamps=0", (("net.ipv4.tcp_timestamps", "0"),)),
        ("echo 1 > /proc/sys/net/ipv4/tcp_ecn", (("net.ipv4.tcp_ecn", "1"),)),
        ("../../common/defaults.sh", DEFAULTS),
        ("./defaults.sh\nsysctl -q net.ipv4.tcp_sack=0 2>/dev/null", (*DEFAULTS, ("net.ipv4.tcp_sack", "0"))),
        ("/tmp/sysctl_restore_${PPID}.sh", ()),
        ("ip tcp_metrics flush all > /dev/null 2>&1", ()),
        ("# nothing", ()),
        (
            'sysctl -q net.ipv4.tcp_rmem="4096 540000 $((15*1024*1024 + 1))"',
            (("net.ipv4.tcp_rmem", "4096 540000 15728641"),),
        ),
        ("ethtool -K tun0 tso off gso off", ()),
        ("tc qdisc add dev tun0 root pfifo; tc qdisc replace dev tun0 root fq_codel 2>/dev/null", ()),
        ("tc qdisc delete dev tun0 root; true", ()),
    ],
)
def test_settings(command: str, sysctls: tuple[tuple[str, str], ...]):
    assert understand(command) == Meaning(sysctls)


def test_a_time_to_wait():
    assert understand("sleep 0.5; sleep 1").sleep_us == 1_500_000


@pytest.mark.parametrize(
    "command",
    [
        *("rm -rf /", "sysctl -q kernel.panic=1", "tc qdisc add dev tun0 root netem loss 1%", "echo hello", "sleep x"),
        *("tc qdisc add dev tun0 root pfifo limit 0", "sysctl -q net.ipv4.tcp_sack=$((1/0))", "sleep 1000000", "tc"),
        "tc qdisc replace dev tun0 root fq",
        *("sysctl -q net.ipv4.tcp_sack=$(id)", "ip link set tun0 mtu 9000"),
    ],
)
def test_all_else_is_refused(command: str):
    with pytest.raises(NotSupported) as error:
        understand(command)
    assert command.split()[0] in error.value.needs


def test_all_that_is_unknown_is_named():
    with pytest.raises(NotSupported) as error:
        understand("reboot\nsysctl -q net.ipv4.tcp_sack=0; halt")
    assert error.value.needs == "the command `reboot`; the command `halt`"
