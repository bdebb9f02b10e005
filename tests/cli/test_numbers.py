"""Numbers on command lines that no option can take: one line that says so, and exit status 2."""

from __future__ import annotations

from pathlib import Path

from .test_streams import commands

PEERS = ("--peers", "1=127.0.0.1:7400,2=127.0.0.1:7401")
HUGE = str(10**30)
U32, U64 = str(2**32), str(2**64)
NIC = ("--nic", "loadgen:echo,seconds=0.01,rate=100")

WRONG = (
    ["top", "--once", "-n", HUGE],
    ["stat", HUGE],
    ["stat", "9" * 5000],
    ["trace", "--pid", HUGE],
    ["run", "echo", *NIC, "--guaranteed", U32],
    ["run", "echo", *NIC, "--max-cores", U32],
    ["run", "echo", *NIC, "--work", U64],
    ["log", "create", "LOG", "--mib", HUGE],
    ["log", "create", "LOG", "--mib", U32],
    ["log", "create", "LOG", "--snapshot-mib", HUGE],
    ["log", "dump", "LOG", "--first", U64],
    ["raft", "init", "--log", "LOG", "--size", "9" * 30],
    ["raft", "add", U32, *PEERS],
    ["raft", "add", "3", *PEERS],
    ["raft", "remove", HUGE, *PEERS],
    ["raft", "clock", *PEERS, "--set", "0001-01-01T00:00:00"],
    ["raft", "clock", *PEERS, "--set", "9999-12-31T23:59:59-10:00"],
    ["raft", "clock", *PEERS, "--set", "nan"],
    ["raft", "clock", *PEERS, "--set", "inf"],
    ["raft", "snapshot", "save", "FILE", *PEERS, "--node", "3"],
    ["raft", "snapshot", "save", "FILE", "--peers", "1=here"],
    ["raft", "snapshot", "restore", "FILE", "--log", "LOG", "--id", U32, "--voters", U32],
    ["raft", "snapshot", "restore", "FILE", "--log", "LOG", "--id", "1", "--voters", f"1,{U32}"],
    ["raft", "snapshot", "restore", "FILE", "--log", "LOG", "--id", "1", "--voters", f"1,{HUGE}"],
    ["raft-sim", "--seed", U64],
    ["raft-sim", "--steps", U32],
    ["raft-sim", "--threads", "1000000"],
    ["load", "memcached://127.0.0.1:1", "--depth", U32],
    ["load", "memcached://127.0.0.1:1", "--connections", U32],
    ["load", "memcached://127.0.0.1:1", "--threads", "65"],
    ["load", "memcached://127.0.0.1:1", "--keys", U32],
    ["load", "memcached://127.0.0.1:1", "--zipf", "nan"],
    ["load", "memcached://127.0.0.1:1", "--points", HUGE],
    ["load", "memcached://127.0.0.1:1", "--seed", U64],
    ["load", "memcached://127.0.0.1:1", "--arrivals", "bursty:" + "9" * 5000],
    ["load", "memcached://127.0.0.1:1", "--value-bytes", "9" * 5000],
    ["load", "udp://127.0.0.1:1", "--request-bytes", U32],
    ["load", "udp://127.0.0.1:1", "--request-bytes", "8"],
    ["load", "udp://127.0.0.1:1", "--request-bytes", "65508"],
    ["lab", "run", "--policy", "fifo", "--interval-us", "inf"],
    ["lab", "run", "--policy", "fifo", "--costs", "switch_ns=inf"],
    ["lab", "run", "--policy", "fifo", "--costs", "switch_ns=1e300"],
    ["lab", "run", "--policy", "fifo", "--speeds", "nan"],
    ["lab", "run", "--policy", "fifo", "--cores", "1.." + "9" * 5000],
)


def test_a_number_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    answers = commands([{"args": args, "cwd": str(tmp_path)} for args in WRONG])
    for args, answer in zip(WRONG, answers, strict=True):
        assert answer["code"] == 2, (args, answer)
        assert len(answer["err"].splitlines()) == 1, (args, answer)
    assert list(tmp_path.iterdir()) == []
