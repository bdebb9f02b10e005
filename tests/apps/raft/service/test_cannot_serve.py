"""A node that cannot serve: its start is refused with one clear error where that is known then, and its process ends by
what stopped it later."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest
from cltest import wait_until
from raftnodes import Nodes

from corelane.apps.raft.service.logs import make_log_file, snapshot_bytes
from corelane.apps.raft.service.resp_app import Options
from corelane.apps.raft.service.service import serve
from corelane.apps.raft.service.settings import GroupSettings, LogSettings, RespSettings
from corelane.cli.main import main
from corelane.drivers.nic.memory import memory_link
from corelane.iokernel import AppConfig, Iokernel
from corelane.libos import Runtime
from corelane.libos.storage.log.log import Log
from corelane.runtime.errors import CorelaneError

PEERS = "1=10.0.0.1:7400,2=10.0.0.2:7400"
MEMORY_BYTES = 4 << 20
SETTINGS: dict[str, Any] = {"memory_bytes": MEMORY_BYTES, "election_ms": 100}
PATIENCE_S = 120


def one_incarnation(path: str, node: int = 1, peers: str = "1=10.0.0.1:7400", **settings: Any) -> None:
    """Serve a node until it has noted in its log whose that is: a group of one leads then."""
    here, there = memory_link(ipv4=(f"10.0.0.{node}", "10.0.0.100"), ipv4_prefix=24)
    with here, there, Runtime(nic=here, poll="block") as runtime:
        group = GroupSettings(**(SETTINGS | settings))
        service = serve(runtime, node, peers, group=group, log=LogSettings(file=path))
        runtime.start()
        wait_until(lambda: service.status()["role"] == "leader", PATIENCE_S, "it to lead")
        runtime.stop()
        service.close()


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = str(tmp_path / "1.log")
    make_log_file(path, 32 << 20)
    return path


OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another node's": (
        {},
        {"node": 2, "peers": PEERS},
        r"serve Raft node 2: the log is of node 1 of the group, not of node 2: start each on its own log",
    ),
    "of none, with a name": (
        {},
        {"name": "foo"},
        r"serve Raft node 1 of group foo: the log is of node 1 of a group without a name, not of node 1 of one with "
        r"the name given: start it with the group's name of the log, or on its own log",
    ),
    "of a name, without": (
        {"name": "foo"},
        {},
        r"serve Raft node 1: the log is of node 1 of a group with a name, not of node 1 of one without a name",
    ),
    "of another name": (
        {"name": "foo"},
        {"name": "bar"},
        r"serve Raft node 1 of group bar: the log is of node 1 of a group with another name",
    ),
    "more sessions": (
        {},
        {"max_sessions": 257},
        r"the log was written with memory_bytes 4194304, max_sessions 256, .* 257, .*: start it with those of the log",
    ),
    "less memory": ({}, {"memory_bytes": MEMORY_BYTES - (1 << 20)}, r"written with memory_bytes 4194304, .*3145728"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_log_that_is_not_of_this_node_refuses_its_start(log: str, case: str) -> None:
    before, now, says = OTHERS[case]
    one_incarnation(log, **before)
    with pytest.raises(CorelaneError, match=says):
        one_incarnation(log, **now)
    one_incarnation(log, **before)  # the log was not touched, and is free again


def test_values_of_which_a_snapshot_may_not_fit_are_refused_and_what_is_told_to_be_given_is_good(log: str) -> None:
    here, there = memory_link(ipv4=("10.0.0.1", "10.0.0.100"), ipv4_prefix=24)

    def start(memory_bytes: int) -> None:
        with Runtime(nic=here, poll="block") as runtime:
            group = GroupSettings(memory_bytes=memory_bytes)
            service = serve(
                runtime, 1, "1=10.0.0.1:7400", group=group, log=LogSettings(file=log), resp=RespSettings(port=6379)
            )
            service.close()

    with here, there:
        with pytest.raises(CorelaneError, match=r"quarter of its size: give memory_bytes=.*, or a log of") as refused:
            start(8 << 20)
        told = re.search(r"give memory_bytes=(\d+) or less on all nodes, or a log of (\d+) MiB", str(refused.value))
        assert told
        most = int(told[1])
        assert 4 << 20 < most < 8 << 20
        assert 32 < int(told[2]) < 64
        with pytest.raises(CorelaneError, match="give memory_bytes="):
            start(most + 4)
        start(most)


def test_the_values_of_a_node_that_is_told_nothing_fit_into_a_log_that_is_made_so() -> None:
    assert Options().memory_bytes // 2 * 3 + 256 * 64 + 4096 < snapshot_bytes(256 << 20) * (1 - 1 / 1024)


def run_words(path: str, *options: str) -> list[str]:
    words = [f"log={path}", f"memory_bytes={MEMORY_BYTES}", "election_ms=100", *options]
    return ["run", "raft-kv", "--poll", "block", "--seconds", str(PATIENCE_S), *(f"--option={w}" for w in words)]


def test_such_a_start_says_nothing_of_serving(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    one_incarnation(log)
    place = ["--nic", "loadgen:memcached,rate=100,seconds=0.1", "--address", "10.0.0.1/24"]
    assert main([*run_words(log, "peers=1=10.0.0.1:7400", "group=foo"), *place]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "serve Raft node 1 of group foo: the log is of node 1 of a group without a name" in said.err


def test_a_process_ends_by_what_stops_its_node_later(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An entry that cannot be used is found when the node reads its log: it serves already."""
    one_incarnation(log)
    with Log.open(log) as opened:
        opened.append(b"without a term")
    socket = str(tmp_path / "sock")
    apps = {"raft-1": AppConfig(ip="10.77.0.11")}
    before = signal.getsignal(signal.SIGTERM)
    with Iokernel(socket, poll="block", apps=apps):
        place = ["--socket", socket, "--name", "raft-1"]
        assert main([*run_words(log, "peers=1=10.77.0.11:7400"), *place]) == 1
    assert signal.getsignal(signal.SIGTERM) is before
    said = capsys.readouterr().err.splitlines()
    assert any("raft-1 serves UDP port 7400, 11211" in line for line in said)
    assert said[-1].startswith("corelane run: serve Raft node 1: it has stopped: entry ")
    assert said[-1].endswith("cannot be used: it has no term")


RANGES = {
    "port": (0, [-1, 70000], 65535),
    "memory_bytes": (1 << 20, [-1, 0, 99999999999999999999], 1 << 42),
    "election_ms": (1, [-5, 0], 3_600_000),
    "max_sessions": (1, [-1, 0, (1 << 30) + 1, 1 << 31, 99999999999], 1 << 24),
}


@pytest.mark.parametrize(("option", "value"), [(o, v) for o, (_, wrong, _) in RANGES.items() for v in wrong])
def test_a_number_out_of_range_is_one_clear_error(option: str, value: int, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--option=peers=1=10.0.0.1:7400", f"--option={option}={value}"]
    place = ["--nic", "loadgen:memcached,rate=100,seconds=0.1", "--address", "10.0.0.1/24"]
    assert main(["run", "raft-kv", *words, *place]) == 2
    said = capsys.readouterr()
    least, _, most = RANGES[option]
    assert said.err == f"corelane run: take {option}={value}: it is out of range (give {least} to {most})\n"
    assert said.out == ""


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"kv_port": -1}, "take kv_port=-1: it is out of range"),
        ({"log_entries": -1}, r"take log_entries=-1: it is out of range \(give 0 to 4294967295\)"),
        ({"log_bytes": 1 << 64}, "take log_bytes=18446744073709551616"),
        ({"log_byte": 1}, "take log_byte=1: there is no such option"),
    ],
)
def test_so_is_a_setting_of_a_program(settings: dict[str, int], says: str) -> None:
    here, there = memory_link(ipv4=("10.0.0.1", "10.0.0.100"), ipv4_prefix=24)
    with here, there, Runtime(nic=here) as runtime, pytest.raises(CorelaneError, match=says):
        serve(runtime, 1, "1=10.0.0.1:7400", **settings)


def test_and_one_that_a_group_has_in_common() -> None:
    with pytest.raises(CorelaneError, match=r"reply_bytes: is 0 \(expected a whole number from 8 to 65536\)"):
        GroupSettings(reply_bytes=0)


@pytest.mark.parametrize("sessions", [(1 << 24) + 1, (1 << 30) + 1, (1 << 31) - 1])
def test_a_node_in_c_refuses_more_sessions_than_it_can_count(sessions: int) -> None:
    with pytest.raises(CorelaneError, match=f"max_sessions is {sessions}, and may be 16777216 at most"):
        Nodes(1, max_sessions=sessions)
