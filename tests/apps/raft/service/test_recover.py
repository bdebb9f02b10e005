"""A group's state in a file, a group that begins with it, and one that begins with the log of a node that is left."""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from cltest import wait_until
from raftdisks import Disk
from raftlink import ALONE, KV_PORT, LinkClient, await_lead, served
from raftnodes import Nodes

from corelane.apps._native import ffi, lib
from corelane.apps.raft.service import export, operate, recover
from corelane.apps.raft.service.logs import make_log_file
from corelane.apps.raft.service.operate import Operator
from corelane.apps.raft.service.service import RaftService
from corelane.apps.raft.service.settings import LogSettings
from corelane.cli.main import main
from corelane.libos.storage.log.log import Log
from corelane.runtime.errors import CorelaneError


class LinkSocket:
    """A UDP socket at the other end of a node's wire, as far as a Client and a test need one."""

    def __init__(self, client: LinkClient) -> None:
        self.client, self.timeout = client, 60.0
        self.got: list[bytes] = []

    def settimeout(self, seconds: float) -> None:
        self.timeout = seconds

    def sendto(self, data: bytes, to: tuple[str, int]) -> None:
        self.client.send(data, port=to[1])

    def _look(self) -> bool:
        self.got += self.client.payloads()
        return bool(self.got)

    def recvfrom(self, _size: int) -> tuple[bytes, tuple[str, int]]:
        try:
            wait_until(self._look, self.timeout, "a datagram")
        except AssertionError:
            raise TimeoutError from None
        return self.got.pop(0), ALONE[1]

    def memcached(self, text: bytes) -> bytes:
        return self.client.memcached(text)

    def close(self) -> None:
        pass


@contextlib.contextmanager
def alone(log: Path, **options: Any) -> Iterator[tuple[RaftService, LinkSocket]]:
    """raft-kv as a group of one, on that log."""
    with served(log=LogSettings(file=str(log)), kv_port=KV_PORT, **options) as (node, client):
        await_lead(node)
        yield node, LinkSocket(client)


def operator(sock: LinkSocket) -> Operator:
    return Operator(ALONE, timeout_s=30, sock=sock)  # type: ignore[arg-type]


def test_a_store_is_saved_exported_and_restored(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    old, new, file = tmp_path / "old.log", tmp_path / "new.log", str(tmp_path / "group.snap")
    make_log_file(str(old), 32 << 20)
    with alone(old) as (_, sock):
        assert sock.memcached(b"set a 7 0 3\r\nabc\r\n") == b"STORED\r\n"
        assert sock.memcached(b"set b 0 2000000000 1\r\nx\r\n") == b"STORED\r\n"
        assert sock.memcached(b"set c 0 0 1\r\ny\r\n") == b"STORED\r\n"
        assert sock.memcached(b"delete c\r\n") == b"DELETED\r\n"
        with operator(sock) as group:
            recover.write_saved(file, group.save())
        assert sock.memcached(b"set a 0 0 5\r\nlater\r\n") == b"STORED\r\n"
    assert main(["raft", "snapshot", "export", file]) == 0
    exported = capsysbinary.readouterr().out
    assert exported == b"set a 7 0 3\r\nabc\r\nset b 0 2000000000 1\r\nx\r\n"
    words = ["raft", "snapshot", "restore", file, "--id", "1", "--voters", "1", "--log", str(new), "--size", "32M"]
    assert main(words) == 0
    assert main(words) == 1  # it does not write over one
    with alone(new) as (node, sock):
        assert sock.memcached(b"get a b c\r\n") == b"VALUE a 7 3\r\nabc\r\nVALUE b 0 1\r\nx\r\nEND\r\n"
        assert sock.memcached(b"set a 0 0 3\r\nnew\r\n") == b"STORED\r\n"
        assert node.status()["members"].voters == {1}
    digests = [recover._FIRST.unpack_from(meta_of(path), recover._META.size)[0] for path in (old, new)]
    assert digests[0] != digests[1]


class Impatient(Operator):
    """Others have newer snapshots made all the time."""

    sock: LinkSocket
    writes = 0

    def _ask_node(self, node: int, kind: int, data: bytes = b"", wait_s: float = 0.5) -> bytes | None:
        if kind == operate._SNAPSHOT:
            self.writes += 1
            self.sock.memcached(b"set w 0 0 4\r\n%04d\r\n" % self.writes)
            super()._ask_node(node, kind, b"\xff" * 8, wait_s)
        return super()._ask_node(node, kind, data, wait_s)


def test_newer_snapshots_do_not_keep_one_from_being_saved(tmp_path: Path) -> None:
    """Each began it anew, and put off the end: of a busy group none was ever saved."""
    log = tmp_path / "log"
    make_log_file(str(log), 32 << 20)
    with alone(log) as (node, sock):
        with Impatient(ALONE, timeout_s=30, sock=sock) as group:  # type: ignore[arg-type]
            group.sock = sock
            saved = group.save()
            assert group.writes > 10
        assert saved.index < node.status()["snapshot_index"]
        recover.write_saved(str(tmp_path / "snap"), saved)
    items = b"".join(export.export_store(recover.read_saved(str(tmp_path / "snap"))))
    assert items.startswith(b"set w 0 0 4\r\n00")


def meta_of(path: Path) -> bytes:
    with Log.open(path, on_damage="read-only") as log:
        return log.meta()


SAVED = recover.Saved(5, 2, recover.Settings(0, 4 << 20, 3_600_000, 256, 16384), bytes(100), 1, (1,))


def test_a_file_of_which_any_byte_changed_is_refused(tmp_path: Path) -> None:
    """Of its header, too: another index, term or number of bytes for the store would be another group's state."""
    file = tmp_path / "snap"
    recover.write_saved(str(file), SAVED)
    assert recover.read_saved(str(file)) == SAVED
    whole = file.read_bytes()
    changed = [whole[:at] + bytes([whole[at] ^ bit]) + whole[at + 1 :] for at in range(len(whole)) for bit in (1, 3)]
    for bad in (*changed, *(whole[:n] for n in range(len(whole))), whole + b"x"):
        file.write_bytes(bad)
        with pytest.raises(CorelaneError, match=r"it is none|cut short or changed"):
            recover.read_saved(str(file))


def written_before(about: dict[str, Any], data: bytes) -> bytes:
    """A file of the version before: its digest is of the snapshot alone."""
    head = json.dumps({**about, "sha256": hashlib.sha256(data).hexdigest()}).encode()
    return b"CLRSNAP1" + struct.pack("<I", len(head)) + head + data


def test_a_file_of_the_version_before_is_read_if_its_numbers_can_be(tmp_path: Path) -> None:
    file, data = tmp_path / "snap", SAVED.data
    about = {"index": 5, "term": 2, "at_s": 1, "members": [1], "settings": asdict(SAVED.settings), "bytes": 100}
    file.write_bytes(written_before(about, data))
    assert recover.read_saved(str(file)) == SAVED
    wrong: list[dict[str, Any]] = [{"index": "5"}, {"index": -1}, {"term": 1 << 64}, {"at_s": None}, {"members": 3}]
    wrong += [{"members": ["1"]}, {"settings": asdict(SAVED.settings) | {"machine": 1.5}}, {"settings": {}}]
    for one in wrong:
        file.write_bytes(written_before(about | one, data))
        with pytest.raises(CorelaneError, match="cut short or changed"):
            recover.read_saved(str(file))


@pytest.mark.parametrize("data", [b"", bytes(31), bytes(32)])
def test_a_file_that_holds_no_snapshot_is_refused(
    tmp_path: Path, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    file, log = str(tmp_path / "snap"), str(tmp_path / "log")
    recover.write_saved(file, replace(SAVED, data=data))
    for words in (("export", file), ("restore", file, "--log", log, "--id", "1", "--voters", "1", "--size", "32M")):
        assert main(["raft", "snapshot", *words]) == 1
        assert "it is not one of a Raft node" in capsys.readouterr().err
    assert not Path(log).exists()


def aligned(size: int) -> tuple[Any, Any]:
    """Memory that a device takes: what holds it, and where it begins."""
    held = ffi.new("uint8_t[]", size + 4096)
    return held, held + -int(ffi.cast("uintptr_t", held)) % 4096


def three(tmp_path: Path, commands: int) -> list[Path]:
    """The logs of a group of three that has done so many commands, and made a snapshot on the way."""
    disks = {i: Disk(i) for i in (1, 2, 3)}
    nodes = Nodes(3, logs={i: disk.open() for i, disk in disks.items()})
    leader = nodes.leader()
    for i in range(commands):
        assert nodes.command(leader, b"%d" % i) == ("ok", b"%d" % (i + 1))
        if i == commands // 2:
            for node in nodes.nodes.values():
                node.compact()
            nodes.settle()
    nodes.run(20)
    for i, disk in disks.items():
        nodes.stop(i)
        disk.crash(power=False)
        size, (_held, data) = int(disk.blk.bytes), aligned(disk.blk.bytes)
        assert lib.cl_blk_read(disk.blk, 0, 0, data, size) == 0
        (tmp_path / f"{i}.log").write_bytes(bytes(ffi.buffer(data, size)))
        disk.close()
    return [tmp_path / f"{i}.log" for i in (1, 2, 3)]


def on_disk(path: Path) -> Disk:
    """The log of that file, in memory."""
    disk, whole = Disk(99), path.read_bytes()
    _held, data = aligned(len(whole))
    ffi.memmove(data, whole, len(whole))
    assert lib.cl_blk_write(disk.blk, 0, 0, data, len(whole), lib.CL_BLK_DURABLE) == 0
    return disk


def test_what_is_left_becomes_a_group_of_one_once_the_loss_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = three(tmp_path, 30)
    before = paths[1].read_bytes()
    assert main(["raft", "recover", "--log", str(paths[1])]) == 1
    said = capsys.readouterr().out
    assert "NOTHING WAS DONE" in said
    assert "LOST is what was acknowledged" in said
    assert "the voters are 1,2,3" in said
    assert paths[1].read_bytes() == before
    assert main(["raft", "recover", "--log", str(paths[1]), "--accept-data-loss", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["recovered"], told["id"], told["voters"]) == (True, 2, [1, 2, 3])
    nodes, disks = Nodes(3), {i: on_disk(paths[i - 1]) for i in (2, 3)}  # one of the old group comes back, too
    for i in (1, 2, 3):
        nodes.stop(i)
    for i, disk in disks.items():
        nodes.start(i, disk.open())
    nodes.cut = {1}
    for _ in range(300):
        nodes.run(1)
        if nodes.nodes[2].leader == 2:
            break
    assert nodes.command(2, b"after") == ("ok", b"31")
    assert nodes.machines[2].commands == [*(b"%d" % i for i in range(30)), b"after"]
    nodes.run(100)
    assert b"after" not in nodes.machines[3].commands
    assert nodes.nodes[2].counters()["other_voters"] + nodes.nodes[3].counters()["other_voters"] > 0
    for i, disk in disks.items():
        nodes.stop(i)
        disk.close()


def test_three_logs_of_one_file_are_a_group_that_nobody_of_the_old_one_is_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Voters are others than those that were saved; one node of the old group comes back beside them."""
    old, file = three(tmp_path, 10), str(tmp_path / "group.snap")
    with Log.open(old[0]) as log:
        kept, settings = log.snapshot(), recover.survivor(log).settings
        assert kept
        recover.write_saved(file, recover.Saved(kept.index, kept.tag, settings, b"".join(log.read_snapshot())))
    voters = (2, 3, 4)
    for i in voters:
        words = ["--id", str(i), "--voters", "2,3,4", "--log", str(tmp_path / f"new-{i}.log"), "--size", "1M"]
        assert main(["raft", "snapshot", "restore", file, *words]) == 0
        assert f"begins with entry {kept.index}; voters 2,3,4. Start all of them" in capsys.readouterr().out
    nodes = Nodes(4)
    disks = {1: on_disk(old[0])} | {i: on_disk(tmp_path / f"new-{i}.log") for i in voters}
    for i, disk in disks.items():
        nodes.stop(i)
        nodes.start(i, disk.open())
    nodes.cut = {1}
    leader = nodes.leader()
    saved = [b"%d" % i for i in range(6)]  # the snapshot was made after six
    assert nodes.machines[leader].commands == saved
    nodes.cut = set()
    nodes.run(100)
    assert nodes.nodes[leader].leader == leader
    assert nodes.command(leader, b"after") == ("ok", b"7")
    nodes.run(20)
    assert [nodes.machines[i].commands for i in voters] == [[*saved, b"after"]] * 3
    assert b"after" not in nodes.machines[1].commands
    assert sum(nodes.nodes[i].counters()["other_voters"] for i in voters) > 0
    for i, disk in disks.items():
        nodes.stop(i)
        disk.close()


def test_what_is_not_a_store_s_is_not_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = recover.Settings(0, 4 << 20, 3_600_000, 256, 16384)
    image = _image(units=[b"*1\r\n$4\r\nPING\r\n"])
    for state, said in (
        (b"neither", "no snapshot of raft-kv or raft-resp"),
        (image[:-1], "its values end in the middle"),
        (image + b"more", "its values end in the middle"),
        (image[:4] + b"\2" + image[5:], "of version 2"),
    ):
        head = recover._HEADER.pack(recover._SNAPSHOT_MAGIC, 1, 0, 0, 0, 0)
        recover.write_saved(str(tmp_path / "snap"), recover.Saved(5, 2, settings, head + state, 1, (1,)))
        assert main(["raft", "snapshot", "export", str(tmp_path / "snap")]) == 1
        assert said in capsys.readouterr().err


def _image(units: list[bytes]) -> bytes:
    """A raft-resp node's, with a piece of what was not complete."""
    head = export._IMAGE.pack(lib.CL_RAFT_RESP_IMAGE_MAGIC, lib.CL_RAFT_RESP_IMAGE_VERSION, 7, 8, 0, 0, 5)
    return head + b"piece" + b"".join(len(u).to_bytes(8, "little") + u for u in units)


def test_a_damaged_log_is_recovered_if_what_follows_the_damage_is_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = three(tmp_path, 30)[0]
    with Log.open(path, on_damage="read-only") as log:
        at = next(iter(log.records(log.durable_index - 3))).offset
    whole = bytearray(path.read_bytes())
    whole[at + 40] ^= 1
    path.write_bytes(whole)
    words = ["raft", "recover", "--log", str(path)]
    assert main(words) == 1
    assert "ITS LOG IS DAMAGED" in capsys.readouterr().out
    assert main([*words, "--accept-data-loss"]) == 1
    assert "give up what follows with --cut-damage" in capsys.readouterr().err
    assert path.read_bytes() == bytes(whole)
    assert main([*words, "--accept-data-loss", "--cut-damage", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recovered"]
    disk = on_disk(path)
    nodes = Nodes(1, logs={1: disk.open()})
    answer = nodes.command(nodes.leader(), b"more")
    assert answer is not None
    assert answer[0] == "ok"
    done = nodes.machines[1].commands
    assert done == [*(b"%d" % i for i in range(len(done) - 1)), b"more"]
    assert len(done) > 20
    nodes.stop(1)
    disk.close()


def test_a_recovery_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    path = three(tmp_path, 5)[0]
    with Log.open(path) as log:
        left = recover.survivor(log)
        log.set_meta(recover._meta(left.id, left.term + 1, left.settings, [left.id], 5))  # and then it was killed
    with Log.open(path) as log:
        again = recover.recover(log)
        assert (again.id, again.last_index) == (left.id, left.last_index)
    disk = on_disk(path)
    nodes = Nodes(1, logs={1: disk.open()})
    assert nodes.command(nodes.leader(), b"more") == ("ok", b"6")
    nodes.stop(1)
    disk.close()


@pytest.mark.parametrize("ahead", [5, -1])
def test_entries_that_a_leader_s_snapshot_takes_the_place_of_are_not_recovered(tmp_path: Path, ahead: int) -> None:
    """It was written, and then the power failed: the log's entries end before it, or are of another leader."""
    path = three(tmp_path, 10)[0]
    with Log.open(path) as log:
        last, before = log.durable_index, recover.survivor(log)
        log.save_snapshot(last + ahead, [b"".join(log.read_snapshot())], tag=before.last_term + 1)
    with Log.open(path) as log:
        left = recover.recover(log)
        assert (left.last_index, left.last_term) == (last + ahead, before.last_term + 1)
        assert log.durable_index == last + ahead + 1
    disk = on_disk(path)
    nodes = Nodes(1, logs={1: disk.open()})
    assert nodes.command(nodes.leader(), b"more") == ("ok", b"7")  # the snapshot was made after six
    nodes.stop(1)
    disk.close()


@pytest.mark.parametrize("left", ["ends before it", "is another one"])
def test_a_log_that_a_crash_left_before_it_began_anew_behind_a_snapshot_is_recovered(tmp_path: Path, left: str) -> None:
    """A leader's snapshot came, and the power went before the log had begun anew: its entries are no part of it."""
    whole = three(tmp_path, 10)[0]
    with Log.open(whole) as log:
        meta, kept, data = log.meta(), log.snapshot(), b"".join(log.read_snapshot())
    assert kept
    path = tmp_path / "left.log"
    make_log_file(str(path), whole.stat().st_size)
    entries = 3 if left == "ends before it" else kept.index + 2
    with Log.open(path) as log:
        log.set_meta(meta)
        for _ in range(entries):
            log.append(bytes(32), tag=kept.tag - 1 or 7, kind=lib.CL_RAFT_COMMAND)
        log.save_snapshot(kept.index, [data], tag=kept.tag)
    with Log.open(path) as log:
        said = recover.recover(log)
        assert (said.last_index, said.last_term) == (kept.index, kept.tag)
    disk = on_disk(path)
    nodes = Nodes(1, logs={1: disk.open()})
    leader = nodes.leader()
    answer = nodes.command(leader, b"more")
    assert answer is not None
    assert answer[0] == "ok"
    assert nodes.machines[1].commands[-1] == b"more"
    assert nodes.machines[1].commands[:-1] == [b"%d" % i for i in range(len(nodes.machines[1].commands) - 1)]
    nodes.stop(1)
    disk.close()


def test_a_log_of_no_node_is_not_recovered(tmp_path: Path) -> None:
    make_log_file(str(tmp_path / "new"), 2 << 20)
    with (
        Log.open(tmp_path / "new") as log,
        pytest.raises(CorelaneError, match="no Raft node has written to it"),
    ):
        recover.recover(log)


def test_the_log_s_clock_and_area_are_in_the_status_and_the_clock_is_set(tmp_path: Path) -> None:
    log = tmp_path / "log"
    make_log_file(str(log), 32 << 20)
    with alone(log) as (_, sock):
        assert sock.memcached(b"set a 0 100 1\r\nx\r\n") == b"STORED\r\n"
        with operator(sock) as group:
            status = group.leader_status()
            assert abs(status["clock"]["ahead_ms"]) < 60_000
            usage = status["log"]
            assert sum(usage[f"{n}_bytes"] for n in ("kept", "dead", "free", "reserved")) == usage["ring_bytes"]
            hour = 3_600_000
            after = group.set_clock(status["clock"]["wall_ms"] + hour)
            assert abs(after["clock"]["ahead_ms"] - hour) < 60_000
        assert sock.memcached(b"get a\r\n") == b"END\r\n"  # it has expired by that clock
