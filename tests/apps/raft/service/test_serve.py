"""Three processes over the virtual switch: the replicated store and a user's state machine, killed under load."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
from cltest import wait_until
from cltest.children import die_with_parent

from corelane.apps.raft.node.machine import CommandRefused
from corelane.apps.raft.service.client import Client, NotSent
from corelane.apps.raft.service.logs import make_log_area, make_log_file
from corelane.cli.main import main
from corelane.drivers.blk import loop as blk_loop
from corelane.drivers.blk.file import create
from corelane.drivers.nic.tap.tap import Tap
from corelane.iokernel import AppConfig, Iokernel
from corelane.iokernel._native import lib
from corelane.iokernel.areas.areas import Areas
from corelane.iokernel.areas.device import open_device
from corelane.libos.storage.log.log import Log
from corelane.runtime import control
from corelane.runtime.errors import CorelaneError

ROOT = Path(__file__).resolve().parents[4]
HOST = "10.77.0.1"
PEERS = ",".join(f"{i}=10.77.0.{10 + i}:7400" for i in (1, 2, 3))
pytestmark = [pytest.mark.root, pytest.mark.slow]


class Group:
    """An iokernel with three nodes as processes, and the host on a tap."""

    def __init__(self, path: str, space, log_dir: Path | None, *, areas: bool = False) -> None:
        self.path, self.space, self.log_dir, self.areas = path, space, log_dir, areas
        self.children: dict[int, subprocess.Popen[str]] = {}
        self.sockets: list[socket.socket] = []

    def words(self, i: int, memory_bytes: int = 4 << 20, peers: str = PEERS, join: str = "no") -> list[str]:
        """What starts node i of the store."""
        log = [] if self.log_dir is None else ["--option", f"log={self.log_dir}/{i}.log"]
        if self.log_dir and not (self.log_dir / f"{i}.log").exists():
            make_log_file(f"{self.log_dir}/{i}.log", 32 << 20)
        if self.areas:
            log = ["--option", f"area=raft-{i}"]
        kv = [
            "-m",
            "corelane.cli.main",
            "run",
            "raft-kv",
            "--socket",
            self.path,
            "--name",
            f"raft-{i}",
            "--poll",
            "block",
        ]
        options = [f"id={i}", f"peers={peers}", f"join={join}", "election_ms=100", f"memory_bytes={memory_bytes}"]
        return [*kv, *(w for o in options for w in ("--option", o)), *log]

    def start(self, i: int, command: list[str] | None = None, stderr: TextIO | None = None) -> None:
        silent = None if os.environ.get("RAFT_SHOW") else subprocess.DEVNULL
        self.children[i] = subprocess.Popen(
            [sys.executable, *(command or self.words(i))],
            stdout=subprocess.DEVNULL,
            stderr=stderr or silent,
            preexec_fn=die_with_parent,
            cwd="/",
        )

    def kill(self, i: int) -> None:
        self.children[i].send_signal(signal.SIGKILL)
        self.children.pop(i).wait(60)

    def udp(self) -> socket.socket:
        self.sockets.append(self.space.udp_socket((HOST, 0)))
        return self.sockets[-1]

    def client(self, **options: float) -> Client:
        return Client(PEERS, sock=self.udp(), **options)

    def memcached(self, i: int, text: bytes, sock: socket.socket | None = None) -> bytes:
        """Ask node i until it answers something else than that it has no leader."""
        sock = sock or self.udp()
        answers: list[bytes] = []

        def ask() -> bool:
            sock.sendto(b"\0\7\0\0\0\1\0\0" + text, (f"10.77.0.{10 + i}", 11211))
            sock.settimeout(0.5)
            try:
                answers.append(sock.recv(65536)[8:])
            except TimeoutError:
                return False
            return not answers[-1].startswith(b"SERVER_ERROR")

        wait_until(ask, 60, f"an answer of node {i}")
        return answers[-1]

    def close(self) -> None:
        for i in list(self.children):
            self.kill(i)
        for sock in self.sockets:
            sock.close()


@pytest.fixture
def make_group(netns, socket_path: str, tmp_path: Path) -> Iterator:
    space = netns.add("raft")
    made: list = []

    def make(durable: bool, disk: Path | None = None) -> Group:
        with space.entered():
            nic = Tap("clraft", address=f"{HOST}/16")
        apps = {f"raft-{i}": AppConfig(ip=f"10.77.0.{10 + i}") for i in (1, 2, 3, 4)}
        apps |= {f"ledger-{i}": AppConfig(ip=f"10.77.0.{10 + i}") for i in (1, 2, 3)}
        areas = Areas(open_device(str(disk))) if disk else None
        kernel = Iokernel(socket_path, uplinks=[nic], poll="block", apps=apps, areas=areas)
        kernel.start()
        group = Group(socket_path, space, tmp_path if durable else None, areas=areas is not None)
        made.extend([group, kernel, nic])
        return group

    yield make
    for thing in made:
        stop = getattr(thing, "stop", None) or thing.close
        stop()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "durable", [pytest.param(False, marks=pytest.mark.soak(takes_s=4)), True], ids=["memory", "durable"]
)
def test_the_store_lives_through_kill_9(make_group, durable: bool) -> None:
    group = make_group(durable)
    for i in (1, 2, 3):
        group.start(i)
    assert group.memcached(1, b"set a 5 0 3\r\nabc\r\n") == b"STORED\r\n"
    for i in (1, 2, 3):
        assert group.memcached(i, b"get a\r\n") == b"VALUE a 5 3\r\nabc\r\nEND\r\n"
    acknowledged: dict[int, int] = {}
    failed: list[BaseException] = []
    stop = threading.Event()

    def load(number: int) -> None:
        try:
            with group.client(timeout_s=60) as client:
                n = 0
                while not stop.wait(0.002):
                    n += 1
                    value = b"%d" % n
                    reply = client.command(b"set k%d 0 0 %d\r\n%s\r\n" % (number, len(value), value))
                    assert reply == b"STORED\r\n", reply
                    acknowledged[number] = n
                    assert client.query(b"get k%d\r\n" % number).split(b"\r\n")[1] == value
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=load, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        for victim in (1, 2, 3):
            before = dict(acknowledged)
            wait_until(lambda b=before: failed or all(acknowledged.get(n, 0) > b.get(n, 0) + 5 for n in range(3)), 60)
            group.kill(victim)
            before = dict(acknowledged)
            wait_until(lambda b=before: failed or all(acknowledged.get(n, 0) > b.get(n, 0) + 5 for n in range(3)), 60)
            if not durable:
                break  # a node that forgot its vote may not come back as the same one
            group.start(victim)
            group.memcached(victim, b"get a\r\n")
    finally:
        stop.set()
        for thread in threads:
            thread.join(90)
    assert not failed, failed
    for number, n in acknowledged.items():
        alive = next(iter(group.children))
        assert group.memcached(alive, b"get k%d\r\n" % number).split(b"\r\n")[1] in (b"%d" % n, b"%d" % (n + 1))


@pytest.mark.timeout(120)
def test_logs_on_areas_of_one_device_live_through_kill_9(make_group, tmp_path: Path) -> None:
    if why := blk_loop.missing():
        pytest.skip(why)
    create(tmp_path / "disk", 128 << 20)
    group = make_group(False, tmp_path / "disk")
    for i in (1, 2, 3):
        control.area(group.path, lib.CL_CONTROL_AREA_CREATE, f"raft-{i}", 32 << 20)
        assert make_log_area(group.path, f"raft-{i}") == 32 << 20
        group.start(i)
    assert group.memcached(1, b"set a 5 0 3\r\nabc\r\n") == b"STORED\r\n"
    with pytest.raises(CorelaneError, match="another client has it open"):
        Log.open_area("raft-1", group.path)
    for i in (1, 2, 3):
        group.kill(i)
    for i in (1, 2, 3):
        group.start(i)
    for i in (1, 2, 3):
        assert group.memcached(i, b"get a\r\n") == b"VALUE a 5 3\r\nabc\r\nEND\r\n"
    group.kill(1)
    wait_until(lambda: not listed(group.path)["raft-1"]["in_use"], 60)
    with Log.open_area("raft-1", group.path, on_damage="read-only") as log:
        assert any(b"abc" in record.data for record in log.records())
    assert group.memcached(2, b"set a 5 0 3\r\ndef\r\n") == b"STORED\r\n"


def operate(group: Group, capsys: pytest.CaptureFixture[str], *words: str, peers: str = PEERS) -> tuple[int, str, str]:
    """`corelane raft` in the group's namespace: exit code, stdout, stderr."""
    with group.space.entered():
        code = main(["raft", *words, "--peers", peers])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.timeout(120)
def test_an_item_expires_while_it_is_only_read(make_group) -> None:
    group = make_group(False)
    for i in (1, 2, 3):
        group.start(i)
    assert group.memcached(1, b"set a 0 1 3\r\nabc\r\n") == b"STORED\r\n"
    wait_until(lambda: group.memcached(2, b"get a\r\n") == b"END\r\n", 60, "an item of one second to be gone")


@pytest.mark.timeout(60)
def test_a_store_whose_snapshot_may_not_fit_into_the_log_is_refused(make_group) -> None:
    words = make_group(True).words(1, memory_bytes=64 << 20)
    done = subprocess.run([sys.executable, *words], cwd="/", capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 1
    assert "lower memory_bytes on all nodes, or give a larger log" in done.stderr


@pytest.mark.timeout(120)
def test_a_node_with_another_memory_is_refused_and_all_say_so(make_group, tmp_path: Path) -> None:
    group = make_group(False)
    said = {i: tmp_path / f"{i}.err" for i in (1, 2, 3)}
    for i, path in said.items():
        with path.open("w") as stderr:
            group.start(i, group.words(i, memory_bytes=(8 if i == 3 else 4) << 20), stderr)
    assert group.memcached(1, b"set a 5 0 3\r\nabc\r\n") == b"STORED\r\n"
    wanted = {i: f"Raft node {i} refuses node 3, and is refused by it" for i in (1, 2)} | {
        3: f"here it is memory_bytes={8 << 20} election_ms=100 lease=no max_sessions=256 reply_bytes=16384 "
        "entry_bytes=65536 log=no. So must the version of corelane, or one that makes the same entries. Stop"
    }
    wait_until(lambda: all(wanted[i] in said[i].read_text() for i in said), 60, "every node to say what it refuses")
    assert group.memcached(2, b"get a\r\n") == b"VALUE a 5 3\r\nabc\r\nEND\r\n"
    for i in (1, 2):
        assert said[i].read_text().count("refuses node") == 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "durable", [pytest.param(False, marks=pytest.mark.soak(takes_s=4)), True], ids=["no log", "another log"]
)
def test_a_node_that_comes_back_without_its_log_stops_and_the_others_go_on(make_group, tmp_path: Path, durable) -> None:
    group = make_group(durable)
    said = {i: tmp_path / f"{i}.err" for i in (1, 2, 3)}

    def start(i: int) -> None:
        with said[i].open("a") as stderr:
            group.start(i, stderr=stderr)

    def lose(i: int) -> None:
        (tmp_path / f"{i}.log").unlink(missing_ok=True)

    for i in said:
        start(i)
    assert group.memcached(1, b"set a 5 0 3\r\nabc\r\n") == b"STORED\r\n"
    for i in said:  # each has a leader, so it knows that one
        assert b"abc" in group.memcached(i, b"get a\r\n")
    group.kill(2)
    lose(2)
    start(2)
    why = "it had another log, so" if durable else "it keeps no log and was started again under its"
    wanted = f"Raft node 2 has stopped, and the others go on without it: {why}"
    wait_until(lambda: wanted in said[2].read_text(), 60, "node 2 to say that it stops, and why")
    assert group.children[2].wait(60) == 1
    assert f"corelane run: serve Raft node 2: it has stopped: {why}" in said[2].read_text()
    refused = "refuses node 2: it keeps no log"
    wait_until(lambda: any(refused in said[i].read_text() for i in (1, 3)), 60, "another to say that it refuses it")
    assert group.memcached(1, b"set b 5 0 3\r\ndef\r\n") == b"STORED\r\n"
    assert b"abc" in group.memcached(3, b"get a\r\n")
    assert sum(said[i].read_text().count("refuses node") for i in (1, 3)) <= 2
    for i in said:
        group.kill(i)
        lose(i)
    for i in said:
        start(i)
    assert group.memcached(2, b"get a\r\n") == b"END\r\n"  # nobody is left who was promised anything


@pytest.mark.timeout(120)
def test_operators_look_at_a_group_change_its_members_and_hand_leadership_over(make_group, capsys) -> None:
    group = make_group(True)
    for i in (1, 2, 3):
        group.start(i)
    assert group.memcached(1, b"set a 5 0 3\r\nabc\r\n") == b"STORED\r\n"
    seen: list = []

    def agreed() -> bool:
        code, out, _ = operate(group, capsys, "status", "--json")
        seen[:] = [json.loads(out)["nodes"]]
        leaders = {s["leader"] for s in seen[0].values() if s}
        return code == 0 and None not in seen[0].values() and len(leaders) == 1 and leaders != {0}

    wait_until(agreed, 60, "all nodes to know one leader")
    nodes = seen[0]
    leader = nodes["1"]["leader"]
    assert nodes[str(leader)]["role"] == "leader"
    assert all(s["members"]["voters"] == [1, 2, 3] and s["state"] == "running" for s in nodes.values())
    wait_until(lambda: operate(group, capsys, "status")[1].count("voter") == 3, 60, "three lines of voters")
    stats = group.memcached(leader, b"stats\r\n")
    assert stats.startswith(b"STAT raft_id %d\r\nSTAT raft_role " % leader)
    assert int(stats.split(b"STAT raft_term ")[1].split()[0]) >= nodes[str(leader)]["term"]
    assert b"STAT curr_items 1\r\n" in stats
    assert int(stats.split(b"STAT time ")[1].split()[0]) > 1_700_000_000  # the log's clock, in s since 1970
    assert int(stats.split(b"STAT uptime ")[1].split()[0]) < 86_400  # this store's own, in s

    other = 1 + leader % 3
    code, out, _ = operate(group, capsys, "transfer", str(other), "--json")
    assert (code, json.loads(out)["leader"]) == (0, other)
    code, out, _ = operate(group, capsys, "remove", str(leader), "--json")
    assert (code, [m["id"] for m in json.loads(out)["members"]]) == (0, sorted({1, 2, 3} - {leader}))
    code, out, _ = operate(group, capsys, "add", str(leader), "--learner", "--json")
    assert (code, {m["id"]: m["part"] for m in json.loads(out)["members"]}[leader]) == (0, "learner")
    code, _, err = operate(group, capsys, "transfer", str(leader))
    assert (code, err.count("\n")) == (1, 1)
    assert "no voter" in err
    code, out, _ = operate(group, capsys, "add", str(leader))
    assert code == 0
    assert out.count(" voter ") == 3
    code, out, _ = operate(group, capsys, "remove", str(other), "--json")  # who leads
    assert (code, json.loads(out)["leader"] != other) == (0, True)
    assert operate(group, capsys, "add", str(other))[0] == 0
    for words, status, why in ((("remove", "9"), 1, "does not belong"), (("add", "9"), 2, "not among the peers")):
        code, out, err = operate(group, capsys, *words, "--json")
        assert code == status
        assert why in err
        assert why in json.loads(out)["error"]["why"]

    _, out, _ = operate(group, capsys, "members", "--json")
    down, stays = (m["id"] for m in json.loads(out)["members"] if m["state"] != "leader")
    group.kill(down)
    for words in (("remove", str(stays)), ("add", str(stays), "--learner")):
        code, _, err = operate(group, capsys, *words, "--timeout", "1")
        assert (code, err.count("\n")) == (1, 1)
        assert f"node {down} does not answer: without node {stays} the group could decide nothing any more" in err
    code, _, err = operate(group, capsys, "transfer", str(down), "--timeout", "1")
    assert (code, err.count("\n")) == (1, 1)
    assert "it does not answer" in err
    assert group.memcached(stays, b"set a 5 0 3\r\ndef\r\n") == b"STORED\r\n"
    code, out, _ = operate(group, capsys, "remove", str(down), "--json")
    assert (code, down in {m["id"] for m in json.loads(out)["members"]}) == (0, False)

    group.kill(stays)
    wait_until(lambda: operate(group, capsys, "status")[0] == 1, 60, "a node without a majority to stop leading")
    code, out, err = operate(group, capsys, "members", "--timeout", "0.5")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "leads" in err


@pytest.mark.timeout(120)
def test_a_fourth_node_is_added_to_a_group_that_began_with_three(make_group, capsys, tmp_path: Path) -> None:
    group = make_group(True)
    longer = PEERS + ",4=10.77.0.14:7400"
    for i in (1, 2, 3):
        group.start(i)
    assert group.memcached(1, b"set a 5 0 3\r\nabc\r\n") == b"STORED\r\n"
    group.start(4, group.words(4, peers=longer, join="yes"))

    def members(peers: str = longer) -> dict[int, str]:
        code, out, _ = operate(group, capsys, "members", "--json", "--timeout", "60", peers=peers)
        assert code == 0
        return {m["id"]: m["part"] for m in json.loads(out)["members"]}

    code, _, err = operate(group, capsys, "add", "4", "--timeout", "60", peers=longer)
    assert (code, err.count("\n")) == (1, 1)
    assert "nodes 1, 2, 3 do not know its address" in err
    for i in (1, 2, 3):
        group.kill(i)
        group.start(i, group.words(i, peers=longer))
        assert b"abc" in group.memcached(i, b"get a\r\n")
        assert members() == dict.fromkeys((1, 2, 3), "voter")
    code, _, err = operate(group, capsys, "add", "4", "--timeout", "60", peers=longer)
    assert (code, err) == (0, "")
    assert members() == dict.fromkeys((1, 2, 3, 4), "voter")
    group.kill(1)
    assert group.memcached(4, b"set b 5 0 3\r\ndef\r\n") == b"STORED\r\n"  # 2, 3 and 4: a majority of four
    group.start(1, group.words(1, peers=PEERS.replace(",2=", ",4=10.77.0.14:7400,2="), join="yes"))
    assert b"def" in group.memcached(1, b"get b\r\n")
    with (tmp_path / "5.err").open("w+") as said:  # as a new group of four
        group.kill(4)
        (tmp_path / "4.log").unlink()
        group.start(4, group.words(4, peers=longer), said)
        wanted = "Raft node 4 has stopped, and the others go on without it: it had another log"
        wait_until(lambda: wanted in (tmp_path / "5.err").read_text(), 60, "node 4 to say that it stops, and why")
    assert members(PEERS) == dict.fromkeys((1, 2, 3, 4), "voter")


@pytest.mark.timeout(120)
def test_a_node_of_another_group_of_first_voters_is_not_added(make_group, capsys) -> None:
    group = make_group(True)
    longer = PEERS + ",4=10.77.0.14:7400"
    for i in (1, 2, 3):
        group.start(i)
    group.start(4, group.words(4, peers=longer))
    assert group.memcached(1, b"set a 5 0 3\r\nabc\r\n") == b"STORED\r\n"
    for more in ([], ["--learner"]):
        code, _, err = operate(group, capsys, "add", "4", *more, "--timeout", "60", peers=longer)
        assert (code, err.count("\n")) == (1, 1)
        assert "its group began with other voters, 1,2,3,4, than this one, with 1,2,3" in err

    def told() -> bool:
        lines = operate(group, capsys, "status", peers=longer)[1].splitlines()
        return len(lines) > 5 and "its group began with other voters" in lines[4] and "refused" not in lines[1]

    wait_until(told, 60, "the table to say that node 4 is refused")
    code, out, _ = operate(group, capsys, "members", "--json", "--timeout", "60")
    assert (code, [m["id"] for m in json.loads(out)["members"]]) == (0, [1, 2, 3])


def listed(path: str) -> dict[str, dict[str, object]]:
    """The areas, by name."""
    return {area["name"]: area for area in control.area(path, lib.CL_CONTROL_AREA_LIST)[0]["areas"]}


@pytest.mark.timeout(120)
def test_the_example_replicates_a_state_machine_in_python(make_group, tmp_path: Path) -> None:
    example = ROOT / "examples" / "raft_ledger.py"
    assert len(example.read_text().splitlines()) <= 60
    group = make_group(False)
    argv = {i: [str(example), "serve", str(i), group.path, PEERS, str(tmp_path / f"{i}.log")] for i in (1, 2, 3)}
    for i in (1, 2, 3):
        make_log_file(argv[i][-1], 32 << 20)
        group.start(i, argv[i])
    with group.client(timeout_s=60) as client:
        assert client.command(b"deposit ann 5") == b"5"
        assert client.command(b"withdraw ann 2") == b"3"
        for command, why in ((b"withdraw ann 9", "too little there"), (b"deposit ann", "say: deposit NAME AMOUNT")):
            with pytest.raises(CommandRefused, match=why):
                client.command(command)
        with pytest.raises(CorelaneError, match="could not answer: UnicodeDecodeError"):
            client.query(b"\xff")
        group.kill(1)
        with pytest.raises(CorelaneError, match="70000 bytes are more than the nodes take: 65504 at most"):
            client.command(bytes(70_000))
        assert client.command(b"deposit ann 1") == b"4"
        assert client.query(b"ann") == b"4"
        group.kill(2)
        with pytest.raises(NotSent), group.client(timeout_s=1) as other:
            other.command(b"deposit bob 1")
        group.start(1, argv[1])
        assert client.command(b"deposit ann 1") == b"5"
