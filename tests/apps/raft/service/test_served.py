"""A node on a runtime at one end of a memory link: what it says to those who ask it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cltest import wait_until
from freezing import freezable
from raftlink import ALONE, KV_PORT, QUICK, RAFT_PORT, LinkClient, await_lead, linked, served

from corelane.apps.raft.service import client as c
from corelane.apps.raft.service.logs import make_log_file
from corelane.apps.raft.service.operate import _STATUS
from corelane.apps.raft.service.service import RaftService, serve
from corelane.apps.raft.service.settings import GroupSettings, LogSettings
from corelane.drivers.blk.blk import Blk, BlkFaults, FaultBlk
from corelane.libos import Scheduler
from corelane.libos.trace.commands import COMMIT, NEVER
from corelane.libos.trace.stages import table
from corelane.runtime._native import lib
from corelane.runtime.errors import CorelaneError, Refused
from corelane.runtime.trace import Segment

PEERS = {i: (f"10.0.0.{i}", RAFT_PORT) for i in range(1, 9)}
NO_KIND = 9


class Machine:
    """Has no state."""

    def apply(self, _command: bytes) -> bytes:
        return b"ok"

    def query(self, _query: bytes) -> bytes:
        return b"ok"

    def save(self) -> bytes:
        return b""

    def load(self, _state: bytes) -> None:
        pass


class Kept(Machine):
    """Keeps all commands, one behind the other."""

    def __init__(self) -> None:
        self.state = bytearray()

    def apply(self, command: bytes) -> bytes:
        self.state += command
        return b"ok"

    def save(self) -> bytes:
        return bytes(self.state)

    def load(self, state: bytes) -> None:
        self.state = bytearray(state)


@dataclass
class Asked:
    """The node, and a client of it."""

    service: RaftService
    client: LinkClient
    ticket: int = 0

    def send(self, kind: int, data: bytes = b"") -> None:
        """A client's frame, or its first piece."""
        self.ticket += 1
        frame = c._encode(0, kind, self.ticket, 0, 0, data)
        piece = c._LINK.pack(b"CLRL", self.ticket, len(frame), 0, 1400) + frame[:1400]
        self.client.send(piece, port=RAFT_PORT)

    def answer(self, status: int = c._OK) -> bytes:
        """What it answers, whatever else it says meanwhile."""
        pieces: dict[int, bytes] = {}

        def whole() -> bool:
            for payload in self.client.payloads():
                magic, _, size, i, _ = c._LINK.unpack_from(payload)
                assert magic == b"CLRL"
                pieces[i] = payload[c._LINK.size :]
                pieces[-1] = struct.pack("<I", size)
            got = sum(len(p) for i, p in pieces.items() if i >= 0)
            return bool(pieces) and got == int.from_bytes(pieces[-1], "little")

        wait_until(whole, 60, "an answer")
        frame = b"".join(pieces[i] for i in sorted(pieces) if i >= 0)
        fields = c._FRAME.unpack_from(frame)
        assert (fields[0], fields[2], fields[9]) == (b"CLRA", status, self.ticket)
        assert c._crc(frame[:8] + bytes(4) + frame[12:]) == fields[4]
        return frame[c._FRAME.size :]


@pytest.fixture
def asked() -> Iterator[Asked]:
    """One of eight, alone, with the shortest frames that it can have."""
    group = GroupSettings(election_ms=100, reply_bytes=256)
    with served(peers=PEERS, machine=Machine(), group=group, message_bytes=512, entry_bytes=512) as made:
        yield Asked(*made)


def test_a_status_is_longer_than_all_that_a_node_of_short_frames_sends(asked: Asked) -> None:
    for _ in range(5):
        asked.send(_STATUS)
        text = asked.answer()
        assert len(text) > 512 + 1024
        status = json.loads(text)
        assert status["id"] == 1
        assert [link["id"] for link in status["links"]] == list(range(2, 9))


def test_a_frame_of_no_kind_is_counted(asked: Asked) -> None:
    asked.send(NO_KIND)
    wait_until(lambda: asked.service.stats()["port_malformed"] == 1, 60, "the frame to be counted")


def test_a_request_longer_than_any_frame_is_refused_by_its_first_piece(asked: Asked) -> None:
    """The answer says how much is taken: of a command, and of a query."""
    for kind, most in ((c._APPLY, 512 - 32), (c._QUERY, 1500), (c._OPEN, 512 - 32)):
        asked.send(kind, bytes(70_000))
        assert int.from_bytes(asked.answer(c._TOO_LARGE), "little") == most
    assert asked.service.stats()["port_too_long"] == 3
    asked.send(NO_KIND, bytes(70_000))
    wait_until(lambda: asked.service.stats()["port_too_long"] == 4, 60, "the piece to be counted")
    assert asked.service.stats()["port_malformed"] == 0


def test_a_node_that_does_not_lead_says_so_to_who_orders(asked: Asked) -> None:
    for order in (lambda: asked.service.change_members([1, 2], timeout_s=60), lambda: asked.service.transfer(2, 60)):
        with pytest.raises(Refused, match=r"this node does not lead \(no leader is known: ask again") as raised:
            order()
        assert raised.value.errno == 1


def test_a_node_that_has_stopped_leads_no_more_and_refuses_orders(tmp_path: Path) -> None:
    """Its machine fails at a command; it was the leader of a group of one."""

    class Failing(Machine):
        def apply(self, _command: bytes) -> bytes:
            raise ValueError("broken")

    log = str(tmp_path / "log")
    make_log_file(log, 8 << 20)
    with linked() as (runtime, client):
        service = serve(runtime, 1, ALONE, machine=Failing(), group=QUICK, log=LogSettings(file=log))
        runtime.start()
        asked = Asked(service, client)
        await_lead(service)
        asked.send(c._APPLY, b"a")
        wait_until(lambda: service.status()["role"] != "leader", 60, "it to say that it leads no more")
        status = service.status()
        assert (status["state"], status["leader"], status["leads_for_s"]) == ("stopped", 0, None)
        assert "broken" in status["why"]
        for _ in range(2):  # the first order does not stay in the way of the second
            with pytest.raises(CorelaneError, match="the node has stopped: the state machine could not apply"):
                service.change_members([1, 2], timeout_s=60)
        for _ in range(2):  # who waits for the runtime, or will, is told
            with pytest.raises(CorelaneError, match=r"serve Raft node 1: it has stopped: the state machine .*broken"):
                runtime.wait(60)
        asked.send(_STATUS)  # until its owner stops the runtime
        assert json.loads(asked.answer())["state"] == "stopped"
        runtime.stop()
        service.close()


@pytest.mark.parametrize("runtime_first", [True, False])
def test_a_write_that_fails_while_the_log_is_closed_is_told_and_nobody_answered(
    tmp_path: Path, runtime_first: bool
) -> None:
    """The leader is closed with a command under way, whose client would be told when the node stops for it."""
    log, disks = str(tmp_path / "log"), []
    make_log_file(log, 8 << 20)

    def on_fault(blk: Blk) -> Blk:
        disks.append(FaultBlk(blk, seed=1))
        return disks[0]

    with linked() as (runtime, client):
        group, settings = GroupSettings(election_ms=1000), LogSettings(file=log, in_call=False)
        service = serve(runtime, 1, ALONE, machine=Kept(), group=group, log=settings, disk=on_fault)
        runtime.start()
        asked = Asked(service, client)
        await_lead(service)
        asked.send(c._APPLY, b"a")
        assert asked.answer() == b"ok"
        late_ns = 2_000_000_000
        disks[0].set(BlkFaults(latency_min_ns=late_ns, latency_max_ns=late_ns, write_error=1.0, flush_error=1.0))
        asked.send(c._APPLY, b"b")
        wait_until(lambda: service.status()["last"] > service.status()["durable"], 60, "the write to begin")
        runtime.stop()
        if runtime_first:
            runtime.close()
        assert service.status()["leads_for_s"] > 0
        with pytest.raises(CorelaneError, match=r"close the node's log: .*Input/output error"):
            service.close()


@pytest.mark.parametrize("in_call", [True, False])
def test_lone_commands_are_written_in_the_call_unless_the_node_may_not(tmp_path: Path, in_call: bool) -> None:
    """A group of one, whose answers say that its log has them: they are there when it is opened again."""
    log = str(tmp_path / "log")
    make_log_file(log, 8 << 20)
    answered = b""
    for incarnation in range(2):
        machine, group = Kept(), GroupSettings(election_ms=200)
        settings = LogSettings(file=log, in_call=in_call)
        with served(machine=machine, group=group, log=settings) as (service, client):
            asked = Asked(service, client)
            await_lead(service)
            for i in range(20):
                asked.send(c._APPLY, bytes([incarnation, i]))
                assert asked.answer() == b"ok"
                answered += bytes([incarnation, i])
            stats = service.stats()
        assert bytes(machine.state) == answered
        if stats["port_in_call"] == 0 and in_call:
            pytest.skip("io_uring is refused here, and the other engine keeps nothing")
        assert (stats["port_in_call"] > 0) == in_call
        assert stats["log_appends"] >= 20, "operators see its log"
        assert 0 < stats["log_free_bytes"] < 8 << 20
        wrong = [name for name, n in stats.items() if not re.fullmatch("[a-z][a-z0-9_]{0,30}", name) or n < 0]
        assert not wrong, "they cannot be published"
        assert stats["port_in_call_late"] <= stats["port_in_call"]


@pytest.mark.root
def test_a_node_that_waits_in_the_call_for_a_disk_that_hangs_says_so_and_goes_on_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The file system is frozen under its log, so that no write begins."""
    with freezable(tmp_path) as (folder, frozen):
        log = str(folder / "log")
        make_log_file(log, 8 << 20)
        group = GroupSettings(election_ms=1000)
        with served(machine=Kept(), group=group, log=LogSettings(file=log)) as (service, client):
            asked = Asked(service, client)
            await_lead(service)

            def write() -> bool:
                asked.send(c._APPLY, b"a")
                assert asked.answer() == b"ok"
                return service.stats()["port_in_call"] > 0

            if not any(write() for _ in range(20)):
                pytest.skip("io_uring is refused here, and the other engine keeps nothing")
            for _ in range(5):  # a slow disk may have it write by the ring for a while
                caplog.clear()
                long_ones = service.stats()["port_in_call_long"]
                with frozen():
                    asked.send(c._APPLY, b"b")
                    wait_until(lambda: caplog.records, 60, "it to say that its disk does not answer")
                assert asked.answer() == b"ok"
                said = [r.getMessage() for r in caplog.records]
                assert said == ["Raft node 1: its disk has not answered for 1 s, and it does not vote before it does"]
                if service.stats()["port_in_call_long"] > long_ones:
                    break
            assert service.stats()["port_in_call_long"] > long_ones
            assert write()


def test_the_store_takes_no_answer_for_a_command() -> None:
    """It would go through the log, and be answered: two groups would send each other errors for ever."""
    answers = [
        b"ERROR\r\n",
        b"STORED\r\n",
        b"SERVER_ERROR no leader, or it changed: ask again\r\n",
        b"VALUE a 0 1\r\n1\r\nEND\r\n",
        b"8\r\n",
    ]
    with served(peers=PEERS, kv_port=KV_PORT) as (service, client):
        client.send(*(b"\0\7\0\0\0\1\0\0" + a for a in answers))
        wait_until(lambda: service.stats()["port_kv_requests"] == len(answers), 60, "the datagrams")
        assert service.stats()["port_kv_refused"] == len(answers)


def test_without_a_leader_a_read_is_to_be_asked_again_and_a_command_may_be_done() -> None:
    with served(peers=PEERS, kv_port=KV_PORT) as (_, client):
        assert client.memcached(b"get a\r\n") == b"SERVER_ERROR no leader, or it changed: ask again\r\n"
        may_be = b"SERVER_ERROR no leader, or it changed: it may have been done or not\r\n"
        assert client.memcached(b"delete a\r\n") == may_be
        assert client.memcached(b"get a\r\nincr b 1\r\n") == may_be  # it goes through the log
        assert client.memcached(b"get a\r\nget b\r\n") == client.memcached(b"get a\r\n"), "they are a query"


@pytest.mark.parametrize("kind", [c._APPLY, c._QUERY], ids=["apply", "query"])
def test_a_stop_names_a_machine_that_never_returns(kind: int) -> None:
    begun, over = threading.Event(), threading.Event()

    class Endless(Machine):
        def apply(self, _command: bytes) -> bytes:
            begun.set()
            over.wait()
            return b""

        def query(self, query: bytes) -> bytes:
            return self.apply(query)

    with linked(scheduler=Scheduler(stop_s=0.1)) as (runtime, client):
        service = serve(runtime, 1, ALONE, machine=Endless(), group=QUICK)
        runtime.start()
        await_lead(service)
        Asked(service, client).send(kind, b"x")
        assert begun.wait(60)
        try:
            with pytest.raises(CorelaneError) as caught:
                runtime.stop(0.01)
        finally:
            over.set()
        name = "apply" if kind == c._APPLY else "query"
        assert f"in the state machine's {name}, Endless.{name} at 0x" in str(caught.value)

        def stopped() -> bool:
            with contextlib.suppress(CorelaneError):
                runtime.stop(0)
                return True
            return False

        wait_until(stopped, 60, "the machine to return")
        service.close()


def test_commands_are_messages_of_the_runtimes_trace_with_their_stages() -> None:
    with linked(trace="full") as (runtime, client), Segment.of_process(os.getpid()) as segment:
        service = serve(runtime, 1, ALONE, group=QUICK, machine=Machine())
        runtime.start()
        asked = Asked(service, client)
        await_lead(service)
        segment.skip()
        for i in range(5):
            asked.send(c._APPLY, bytes([i]))
            assert asked.answer() == b"ok"
        asked.send(c._QUERY, b"q")
        assert asked.answer() == b"ok"
        runtime.stop()  # all doorbells are written down
        records, names = segment.read(), segment.services()
        service.close()
    mine = records.messages[records.messages["service"] == names.index(f"Raft {RAFT_PORT}")]
    assert len(mine) == 6
    assert (mine["sent"] > mine["end"]).all(), "until the doorbell"
    assert (mine["blocked"] == mine["end"]).all()
    assert list(records.commands["id"]) == list(mine["id"])
    commands, read = records.commands[:5], records.commands[5]
    assert (commands["gone"] <= commands["agreed"]).all()
    assert (commands["agreed"] < NEVER).all()
    assert (commands["agreed"] <= mine["end"][:5]).all()
    for alone in ("durable", "others"):  # there is no log, and nobody else
        assert (commands[alone] == commands["gone"]).all()
    assert list(commands["index"]) == list(range(int(commands["index"][0]), int(commands["index"][0]) + 5))
    assert (commands["flags"] == 0).all()
    assert (read["flags"], read["index"]) == (lib.CL_TRACE_COMMAND_READ, commands["index"][4])
    assert read["others"] == read["agreed"] <= mine["end"][5]
    stages = table(records, names, segment.hz).of_service(names.index(f"Raft {RAFT_PORT}"))
    parts = [times for path, times in stages.stages.items() if path[: len(COMMIT)] == COMMIT]
    assert sum(parts) == pytest.approx(mine["end"] * 1e6 / segment.hz)


def test_where_a_command_waits_for_its_log_its_flush_is_known(tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    make_log_file(log, 8 << 20)
    with linked(trace="full") as (runtime, client), Segment.of_process(os.getpid()) as segment:
        service = serve(runtime, 1, ALONE, group=QUICK, machine=Machine(), log=LogSettings(file=log))
        runtime.start()
        asked = Asked(service, client)
        await_lead(service)
        segment.skip()
        asked.send(c._APPLY, b"a")
        assert asked.answer() == b"ok"
        runtime.stop()
        commands = segment.read().commands
        service.close()
    assert len(commands) == 1
    stamps = [int(commands[0][field]) for field in ("gone", "flush", "written", "durable")]
    assert stamps == sorted(stamps)
    assert stamps[1] < stamps[2] < 2**32 - 1, "the disk took some time"
    assert commands[0]["agreed"] >= commands[0]["durable"]
