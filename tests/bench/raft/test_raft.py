"""What the Raft benchmark is made of: nodes that die and come back, the floor, the peers. No speed is asserted."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import re
import statistics
import struct
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cltest import wait_until
from cltest.packets import Host

from corelane.bench._native import ffi, lib
from corelane.bench.baseline import compiled
from corelane.bench.baseline.peers import Etcd, Libraft, Puts
from corelane.bench.harness.session import Session
from corelane.bench.log.log import where
from corelane.bench.raft import arms as raft_arms
from corelane.bench.raft import judge as raft_judge
from corelane.bench.raft import lone as raft_lone
from corelane.bench.raft import nodes, raft
from corelane.bench.raft.nodes import KV_PORT, NODES, Group, address
from corelane.bench.raft.turns import Turns
from corelane.bench.raft.udp import UdpClients, tap_group
from corelane.drivers.blk.blk import BlkFaults, FaultBlk, memory_blk
from corelane.drivers.blk.file import FileBlk, create
from corelane.drivers.linux import netns
from corelane.drivers.nic.memory import memory_link
from corelane.libos import Runtime
from corelane.runtime.errors import CorelaneError, SystemLimit


@pytest.fixture(autouse=True)
def _small_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is written whole before it is used: three nodes' would be 384 MB for each group."""
    monkeypatch.setattr(nodes, "BYTES", {"log": 32 << 20, "memory": 4 << 20, "relay": 4 << 20})
    monkeypatch.setattr(raft_lone, "FLOOR_FILE_BYTES", 6 << 20)


@pytest.fixture
def session() -> Session:
    made = Session("raft", seconds=0.1)
    if len(made.cores) < 2:
        pytest.skip("needs two cores")
    return made


def test_a_killed_leader_is_followed_by_another(session: Session, tmp_path: Path) -> None:
    with Group(session.two_cores, logs=tmp_path) as group:
        group.start_all(election_ms=200, prefer=1)
        assert group.leader() == 1
        group.kill(1)
        assert set(group.pids) == {2, 3}
        assert group.await_leader() in (2, 3)
        group.start(1, election_ms=200)
        assert set(group.pids) == set(NODES)


def test_nodes_end_with_the_group(session: Session) -> None:
    with Group(session.two_cores) as group:
        group.start_all(election_ms=200)
        pids = list(group.pids.values())
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 60)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_node_that_cannot_start_says_why(session: Session, tmp_path: Path) -> None:
    with Group(session.two_cores, logs=tmp_path / "not there") as group, pytest.raises(CorelaneError, match="node 2"):
        group.start(2, election_ms=200)


def answered_and_led(slot: Callable[[], raft_arms.Slot]) -> bool:
    """Whether one of several slots was: on a busy machine one may pass unanswered, or end between two leaders."""
    slots = (slot() for _ in range(20))
    return any(got.n > 0 and got.extra is not None and got.extra["leader_at_end"] in NODES for got in slots)


@pytest.mark.parametrize("clients", [0, 2])
def test_puts_are_answered(session: Session, clients: int) -> None:
    assert answered_and_led(lambda: raft_arms.ours_slot(session.two_cores, None, clients, 0.2))


def test_durable_puts_are_answered_where_the_kernel_shares_the_core(session: Session, tmp_path: Path) -> None:
    assert answered_and_led(lambda: raft_arms.ours_slot(session.two_cores, tmp_path, 2, 0.3, managed=False))


def test_nodes_make_snapshots_as_often_as_told(session: Session, tmp_path: Path) -> None:
    for _ in range(20):  # slots, until one had enough puts
        slot = raft_arms.ours_slot(session.two_cores, tmp_path, 4, 0.2, managed=False, snapshot_entries=64)
        assert slot.extra is not None
        if slot.extra["snapshots"] > 0:
            assert slot.extra["terms"] >= 0
            return
    pytest.fail(f"no snapshot, and {slot.n} puts in the last slot")


def test_a_store_is_filled_before_it_is_put_to(session: Session, tmp_path: Path) -> None:
    up = raft_arms.group_up(session.two_cores, tmp_path, 4, managed=False, keys=2 * raft_arms.KEYS)
    with up as (_, generator):
        assert generator.other()["preloaded"] == 2 * raft_arms.KEYS


def test_etcd_has_the_cores_that_the_groups_have(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[Path, Iterable[int]]] = []

    def fails(folder: Path, cores: Iterable[int] = ()) -> Any:
        given.append((folder, cores))
        raise SystemLimit("start it", "it is not to be")

    monkeypatch.setattr(Session, "two_cores", (5, 7))
    monkeypatch.setattr(raft, "Etcd", fails)
    monkeypatch.setattr(raft, "UdpClients", fails)
    assert raft.like_etcd(session, tmp_path) == {}
    assert given == [(tmp_path, (5, 7)), (tmp_path, ())]


@pytest.mark.parametrize(("run_s", "slot_s"), [(0.1, 0.1), (3.0, 0.3), (10.0, 1.0), (120.0, 2.0)])
def test_slots_are_a_second_in_a_run_of_the_usual_length(run_s: float, slot_s: float) -> None:
    assert raft_arms.slot_length(run_s, 3, 20) == pytest.approx(slot_s)


@pytest.mark.parametrize("on_disk", [False, True])
def test_relays_answer_what_two_of_them_have(session: Session, tmp_path: Path, on_disk: bool) -> None:
    """One put at a time, so that on a disk each has a write of its own at the leader and at the first follower."""

    def slot() -> raft_arms.Slot:
        folder = tmp_path if on_disk else None
        return raft_arms.ours_slot(session.two_cores, folder, 1, 0.3, managed=not on_disk, relays=True)

    for _ in range(20):
        if (got := slot()).n:
            break
        for path in tmp_path.iterdir():
            path.unlink()
    assert got.n > 0
    if on_disk:
        leader, first, second = (np.fromfile(tmp_path / f"{n}.log", np.uint8).reshape(-1, 4096) for n in NODES)
        written = [int(blocks.any(axis=1).sum()) for blocks in (leader, first, second)]
        assert min(written[:2]) >= min(got.n, len(leader))
        assert written[2] == 0


def test_a_relay_that_cannot_write_says_so_and_answers_nothing(tmp_path: Path) -> None:
    relay, leader = Host("02:00:00:00:00:01", "10.0.0.1"), Host("02:00:00:00:00:02", "10.0.0.2")
    path = tmp_path / "file"
    create(path, 4096)
    server, client = memory_link(mac=(relay.mac, leader.mac), ipv4=(relay.ip, leader.ip), ipv4_prefix=24)
    with contextlib.ExitStack() as stack:
        fd = os.open(path, os.O_RDONLY)
        stack.callback(os.close, fd)
        runtime = stack.enter_context(Runtime(nic=stack.enter_context(server), poll="block"))
        end = stack.enter_context(client)
        config = ffi.new("struct cl_bench_relay_config *", {"port": 7400, "fd": fd, "file_bytes": 4096})
        out, err = ffi.new("struct cl_bench_relay **"), ffi.new("char[256]")
        assert lib.cl_bench_relay_serve(runtime.ptr, config, out, err) == 0, ffi.string(err)
        runtime.start()
        assert lib.cl_bench_relay_failed(out[0]) == 0
        end.send([leader.datagram(relay, struct.pack("<Q", 1) + b"put", 7400, 7400)])
        wait_until(lambda: lib.cl_bench_relay_failed(out[0]) == errno.EBADF, 60, "the write to fail")
        runtime.stop()
        lib.cl_bench_relay_delete(out[0])
        assert not [frame for frame in end.recv() if frame[12:14] == b"\x08\x00"]


@pytest.mark.parametrize("block", [0, 1])
def test_the_floor_writes_three_at_once(session: Session, tmp_path: Path, block: int) -> None:
    path = tmp_path / "floor"
    create(path, 64 * 4096)
    with contextlib.closing(FileBlk(path)) as blk:
        times = raft_lone.floor_times(blk, session.cores[0], block, 40)
        assert blk.stats().writes == 3 * 40
    assert times == sorted(times)
    assert times[0] > 0
    assert path.read_bytes().count(b"\x5a") == 3 * 21 * 4096  # all of each third: 40 writes go round


def test_a_device_too_small_for_the_floor(session: Session, tmp_path: Path) -> None:
    path = tmp_path / "floor"
    create(path, 2 * 4096)
    with contextlib.closing(FileBlk(path)) as blk, pytest.raises(CorelaneError, match="too small"):
        raft_lone.floor_times(blk, session.cores[0], 0, 1)


@pytest.mark.parametrize("calling", [False, True])
@pytest.mark.parametrize("trail", [None, (15, 3_600_000_000_000)])
def test_raw_writers_on_one_core_write_each_put(
    session: Session, tmp_path: Path, calling: bool, trail: tuple[int, int] | None
) -> None:
    paths = [tmp_path / f"bound-{number}" for number in range(3)]
    with contextlib.ExitStack() as stack:
        blks, fds = [], []
        for path in paths:
            create(path, 64 * 4096)
            blks.append(stack.enter_context(contextlib.closing(FileBlk(path))))
            fds.append(os.open(path, os.O_RDWR))
            stack.callback(os.close, fds[-1])
        times = raft_lone.bound_times(blks, session.two_cores, 70, trail, fds if calling else None)
        writes = [blk.stats().writes for blk in blks]
    assert times == sorted(times)
    assert len(times) == 70
    assert times[0] > 0
    written = [path.read_bytes().count(b"\x5a") for path in paths]
    assert written[:2] == [64 * 4096] * 2  # all of them: 70 writes go round
    if trail:  # the third has what it missed in five writes at most
        assert 70 * 100 <= written[2] < 64 * 4096
    else:
        assert written[2] == 64 * 4096
    if calling:
        assert writes == [0, 0, 0]
    else:
        assert writes[:2] == [70, 70]
        assert 1 <= writes[2] <= 5 if trail else writes[2] == 70


def test_raw_writers_in_all_ways(session: Session, c_program: Callable[..., Callable[..., str]]) -> None:
    assert c_program("tests/bench/raft/c/bound.c")(*session.two_cores) == "ok\n"


def test_a_writer_that_fails_ends_the_others(session: Session, tmp_path: Path) -> None:
    create(tmp_path / "blocks", 16 * 4096)
    with FileBlk(tmp_path / "blocks") as good, memory_blk(16 * 4096) as also:
        bad = FaultBlk(memory_blk(16 * 4096), BlkFaults(write_error=1), seed=1)
        with bad, pytest.raises(CorelaneError, match="a write failed"):
            raft_lone.bound_times([good, also, bad], session.two_cores, 10)


def cpus_of_children() -> list[set[int]]:
    """Those that each process may use that a thread of this one started."""
    pids = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children")).split()
    found = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            found.append(os.sched_getaffinity(int(pid)))
    return found


def seen_cpus(put: Callable[[], Puts], cpus: set[int]) -> Puts:
    """Of a put in a process of its own, which is seen to have these CPUs alone."""
    before = cpus_of_children().count(cpus)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(put)
        wait_until(lambda: cpus_of_children().count(cpus) > before or done.done(), 60, "the client to be there")
        seen = not done.done()
        puts = done.result()
    assert seen
    return puts


@pytest.mark.soak(takes_s=8)
def test_peers_answer_all_puts(tmp_path: Path) -> None:
    least = min(os.sched_getaffinity(0))
    try:
        libraft, etcd = Libraft(tmp_path), Etcd(tmp_path, [least])
    except SystemLimit as why:
        pytest.skip(str(why))
    before, already = os.sched_getaffinity(0), len(cpus_of_children())
    with libraft.running(4, 100, [max(before)]) as put, libraft.running(1, 100, before) as also:  # two at once
        assert os.sched_getaffinity(0) == before
        kept = cpus_of_children()
        assert len(kept) == already + 6
        assert kept.count({max(before)}) >= 3
        for turn, seconds in ((put, 0.05), (also, 0.05), (put, 0.1)):
            puts = turn(seconds)
            assert len(puts.latencies_ns) > 0
            assert list(puts.latencies_ns) == sorted(puts.latencies_ns)
            assert puts.seconds >= seconds
    with etcd.running():
        kept = cpus_of_children()
        assert len(kept) == already + 3
        assert kept.count({least}) >= 3
        assert os.sched_getaffinity(0) == before
        best = seen_cpus(lambda: etcd.best(2, 0.1, 16, 84), {least})
        assert len(best.latencies_ns) > 0
        assert list(best.latencies_ns) == sorted(best.latencies_ns)
    assert not list(tmp_path.glob("libraft-*/"))
    assert not (tmp_path / "etcd").exists()


@pytest.fixture
def udp(tmp_path: Path) -> UdpClients:
    try:
        return UdpClients(tmp_path)
    except SystemLimit as why:
        pytest.skip(str(why))


@pytest.mark.parametrize("one_socket", [pytest.param(False, marks=pytest.mark.soak(takes_s=3)), True])
def test_clients_of_the_kernel_put_to_a_group(
    session: Session, udp: UdpClients, tmp_path: Path, one_socket: bool
) -> None:
    (tmp_path / "logs").mkdir()
    with tap_group(session.two_cores, tmp_path / "logs", election_ms=500) as (group, space):
        before, chosen = os.sched_getaffinity(0), session.two_cores[:1]
        puts = seen_cpus(lambda: udp.put(space, 4, 0.2, 16, 84, chosen, one_socket=one_socket), set(chosen))
        assert os.sched_getaffinity(0) == before
        assert set(group.pids) == set(NODES)
    assert list(puts.latencies_ns) == sorted(puts.latencies_ns)
    assert puts.counts is not None
    # It has seen one stored, or had ended with an error; a busy machine may hold up the rest.
    assert len(puts.latencies_ns) + puts.counts["again"] > 0


def test_a_raw_server_answers_the_same_clients(udp: UdpClients, tmp_path: Path) -> None:
    cpus = [max(os.sched_getaffinity(0))]
    with udp.raw(cpus) as space:
        assert set(cpus) in cpus_of_children()
        puts = udp.put(space, 4, 0.2, 16, 84, cpus, one_socket=True)
    assert puts.counts is not None
    assert puts.counts["refused"] == 0
    assert len(puts.latencies_ns) + puts.counts["again"] > 0
    assert (tmp_path / "raw").read_bytes().count(b"set 0") > 0  # what was put is written


@pytest.mark.parametrize("one_socket", [False, pytest.param(True, marks=pytest.mark.soak(takes_s=3))])
def test_clients_of_the_kernel_send_again_and_count_what_is_refused(udp: UdpClients, one_socket: bool) -> None:
    with netns.namespace("udp") as space, contextlib.ExitStack() as stack:
        space.ip("address", "add", f"{address(1)}/32", "dev", "lo")
        server = stack.enter_context(contextlib.closing(space.udp_socket((address(1), KV_PORT), timeout_s=0.05)))
        ended = threading.Event()
        dropped: set[bytes] = set()

        def serve() -> None:
            seen = 0
            while not ended.is_set():
                with contextlib.suppress(TimeoutError):
                    request, client = server.recvfrom(2048)
                    seen += 1
                    assert request[2:8] == bytes([0, 0, 0, 1, 0, 0])
                    assert re.fullmatch(rb"set \d{16} 0 0 84\r\nv{84}\r\n", request[8:])
                    if seen % 8 == 1 and request not in dropped:
                        dropped.add(request)
                        continue
                    said = b"SERVER_ERROR too busy, nothing was done" if seen % 8 == 2 else b"STORED"
                    server.sendto(request[:8] + said + b"\r\n", client)

        with ThreadPoolExecutor(1) as pool:
            served = pool.submit(serve)
            try:
                puts = udp.put(space, 3, 2.0, 16, 84, os.sched_getaffinity(0), one_socket=one_socket)
            finally:
                ended.set()
            served.result()
    assert puts.counts is not None
    assert puts.counts["again"] > 0
    assert puts.counts["refused"] > 0
    assert puts.latencies_ns[-1] >= 100_000_000  # one that was sent again keeps its beginning


def test_a_missing_library_is_named_with_its_package(tmp_path: Path) -> None:
    with pytest.raises(SystemLimit, match="apt-get install"):
        compiled.build("libraft_put", "CORELANE_LIBRAFT", ("no-such-library-here",), tmp_path)


def slots(*values: tuple[float, float]) -> list[raft_arms.Slot]:
    return [raft_arms.Slot(p50, 2 * p50, rate, 10) for p50, rate in values]


def turns(ours: list[float], **others: list[float]) -> Turns[raft_arms.Slot]:
    """One after the other by name: `ours` is the mean around each of them."""
    named = {NAMES.get(name, name): slots(*((p50, 1) for p50 in p50s)) for name, p50s in others.items()}
    return Turns(slots(*((p50, 1) for p50 in ours)), named, dict.fromkeys(named, ours))


NAMES = {
    "floor": raft_arms.FLOOR,
    "bound": raft_arms.BOUND,
    "two": raft_arms.MAJORITY_BOUND,
    "writers": raft_arms.WRITERS,
    "to_all": f"{raft_arms.TO_ALL}, 1 client",
    "libraft": "libraft, 1 client",
    "one_core": f"{raft_arms.ONE_CORE}, 1 client",
}


def test_figures_are_judged_round_by_round(session: Session) -> None:
    got = {
        "memory, open loop": slots((20, 1), (30, 1), (22, 1)),
        "disk, 64 clients": slots((1, 1000), (1, 3000), (1, 2000)),
        "etcd, 64 clients": slots((1, 100), (1, 100), (1, 100)),
        f"{raft_arms.UDP}, 64 clients": slots((1, 500), (1, 300), (1, 700)),
        f"{raft_arms.MUX}, 64 clients": slots((1, 800), (1, 600), (1, 900)),
        f"{raft_arms.RAW}, 64 clients": slots((1, 1600), (1, 600), (1, 2700)),
    }
    lone = turns(
        [100, 120, 150],
        floor=[100] * 3,
        bound=[80, 100, 100],
        two=[50, 60, 75],
        writers=[80, 80, 100],
        to_all=[160, 150, 150],
        libraft=[200, 180, 300],
        one_core=[150, 120, 300],
    )
    lone = replace(lone, ours=[replace(turn, extra={"sent_to": "majority"}) for turn in lone.ours])
    got[f"{raft_arms.SWITCHED}, open loop"] = slots((10, 1), (20, 1), (11, 1))
    got[f"{raft_arms.SWITCHED}, 1 client"] = slots((16, 1), (9, 1), (10, 1))
    got["memory, 1 client"], got[raft_arms.RELAYS] = slots((16, 1), (18, 1), (20, 1)), slots((8, 1), (9, 1), (5, 1))
    for name, longest in ((raft_arms.OFTEN, 900.0), (raft_arms.NEVER, 300.0)):
        got[f"{name}, 64 clients"] = [raft_arms.Slot(2, 4, 1000, 10, {"longest_us": longest})]
    raft_judge.judge(session, got, lone)
    notes = iter(session.notes)
    assert next(notes).startswith(f"{raft_judge.RELAYS_NOTE} 2 (2 .. 4)")
    assert next(notes) == f"{raft_judge.SWITCHED_NOTE}open loop 2 (1.5 .. 2), one client 2 (1 .. 2)"
    assert next(notes) == "durable_over_floor: 1.2 (half of 3 pairs within 1.1 .. 1.35)"
    three, two, switched = raft_judge.BOUND_NOTES.values()
    assert next(notes) == (
        f"{three}: durable put p50 / theirs 1.25 (half of 3 pairs within 1.23 .. 1.38), "
        "sent to all / theirs 1.5 (half of 3 pairs within 1.5 .. 1.75), "
        "libraft / theirs 2.5 (half of 3 pairs within 2.15 .. 2.75), "
        "theirs / second of three raw writes 1 (half of 3 pairs within 0.9 .. 1)"
    )
    assert next(notes) == (
        f"{two}: durable put p50 / theirs 2 (half of 3 pairs within 2 .. 2), "
        "libraft / theirs 4 (half of 3 pairs within 3.5 .. 4), "
        "theirs / second of three raw writes 0.6 (half of 3 pairs within 0.55 .. 0.675)"
    )
    assert next(notes) == (
        f"{switched}: durable put p50 / theirs 1.5 (half of 3 pairs within 1.38 .. 1.5), "
        "libraft / theirs 2.5 (half of 3 pairs within 2.38 .. 2.75), "
        "theirs / second of three raw writes 0.8 (half of 3 pairs within 0.8 .. 0.9)"
    )
    assert next(notes).startswith(f"{raft_judge.ONE_CORE_NOTE} 1.5 (half of 3")
    assert next(notes) == "libraft_over_ours: 2 (half of 3 pairs within 1.75 .. 2)"
    assert next(notes).startswith(f"{raft_judge.SNAPSHOT_NOTE}p50 1 (1 .. 1), p99 1 (1 .. 1), longest put 3 (3 .. 3)")
    assert next(notes) == raft_judge.CLIENTS_NOTE
    assert next(notes) == f"{raft_judge.RAW_NOTE} 2 (1 .. 3)"
    beside = session.figures["raft.over_etcd"]["beside"]
    assert beside == {"clients in the iokernel's loop": 20, "64 sockets of the kernel": 5}
    assert session.figures["raft.memory_put_us"]["beside"] == {"one client, closed": 18}
    bounds = [session.figures[f"raft.{name}"]["beside"] for name in ("durable_over_floor", "libraft_over_ours")]
    two, switched = (f"{name}, for ours" for name in (raft_arms.MAJORITY_BOUND, raft_arms.WRITERS))
    assert bounds == [
        {two: 0.6, switched: 0.8, "sent to all": 1.5},
        {two: 4.0, switched: 2.5, "sent to all": 1.25},
    ]
    value = {name: figure["value"] for name, figure in session.figures.items()}
    assert value == {
        "raft.memory_put_us": statistics.median([20, 30, 22]),
        "raft.durable_over_floor": pytest.approx(1.2),
        "raft.libraft_over_ours": 2.0,
        "raft.over_etcd": 8.0,
    }


def test_of_a_group_that_sends_to_all_three_raw_writers_are_the_bound(session: Session) -> None:
    lone = turns([100, 120], floor=[100] * 2, bound=[90, 100], two=[50, 60], libraft=[200, 180])
    sent = ("all", "majority")  # as often the one as the other
    lone = replace(lone, ours=[replace(turn, extra={"sent_to": to}) for turn, to in zip(lone.ours, sent, strict=True)])
    raft_judge.judge(session, {"memory, open loop": slots((20, 1))}, lone)
    assert session.figures["raft.durable_over_floor"]["beside"] == {"three raw writers, one core, for ours": 0.95}


@pytest.mark.soak(takes_s=35)
def test_lone_puts_are_measured_in_turns(session: Session, tmp_path: Path) -> None:
    session.baseline = False
    lone = raft_lone.lone_puts(session, tmp_path, None)
    to_all = raft_arms.arm_name(raft_arms.TO_ALL, 1)
    bounds = {raft_arms.BOUND, raft_arms.MAJORITY_BOUND}
    groups = {raft_arms.WRITERS, to_all}
    assert set(lone.others) == {raft_arms.FLOOR, *bounds, *groups}  # of each one's two ways the better one
    assert len(lone.ours) == 1 + len(raft_lone.FLOORS) + len(bounds) * len(raft_lone.WAYS) + len(groups)
    assert all(slot.extra is not None and slot.extra["sent_to"] in ("all", "majority", "") for slot in lone.ours)
    assert any(slot.n > 0 for slot in lone.ours)  # on a busy machine a turn may pass without an answer
    assert all(slot.n > 0 for name, found in lone.others.items() for slot in found if name not in groups)
    raft_judge.judge_turns(session, lone)
    raft_judge.add_row(session, "ours", lone.ours)
    session.finish(raft.FIGURES)
    assert {"raft.durable_over_floor", "raft.libraft_over_ours"} <= session.figures.keys()


def test_without_its_baselines_figures_have_a_reason(session: Session) -> None:
    got = {name: slots((1, 1)) for name in ("memory, open loop", "disk, 64 clients")}
    session.skip(raft_arms.LIBRAFT, "not installed")
    raft_judge.judge(session, got, turns([1], floor=[1]))
    session.finish(raft.FIGURES)
    assert session.figures["raft.over_etcd"]["value"] is None
    assert "not installed" in session.figures["raft.libraft_over_ours"]["reason"]


def test_on_tmpfs_nothing_is_called_durable(session):
    if where("/dev/shm")[0] != "tmpfs":
        pytest.skip("/dev/shm is no tmpfs here")
    session.options = argparse.Namespace(folder=Path("/dev/shm"))
    with contextlib.ExitStack() as stack:
        assert raft.disk_folder(session, stack) is None
        assert not [name for name, _ in raft.ours(session, stack, None) if name.startswith(raft_arms.DISK)]
    raft_judge.judge(session, {"memory, open loop": slots((1, 1))}, None)
    session.finish(raft.FIGURES)
    for name in ("raft.durable_over_floor", "raft.libraft_over_ours", "raft.over_etcd"):
        assert session.figures[name]["value"] is None
        assert "where nothing is durable" in session.figures[name]["reason"]
