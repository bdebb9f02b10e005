"""The server with its log: restarts, kills under load, rewrites, pieces without an end, a disk that fails."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cltest import netns_missing, soak, wait_until
from resphost import LINUX, OURS, PORT
from respstate import ask, state
from respwire import Reply, parse

from corelane.apps.resp import Engine
from corelane.apps.resp.aof import PIECE, open_log, recover
from corelane.apps.resp.app import Options, RespService
from corelane.apps.resp.engine import encode
from corelane.drivers.blk.blk import BlkFaults, FaultBlk, memory_blk
from corelane.drivers.blk.file import FileBlk, create
from corelane.drivers.linux import netns
from corelane.drivers.nic.tap.tap import Tap
from corelane.libos import Runtime
from corelane.libos.storage.log.log import Log, format_area
from corelane.runtime.errors import CorelaneError

HOST = Path(__file__).parents[2] / "support" / "resphost.py"


class Link:
    """A connection, command by command."""

    opened: ClassVar[list[socket.socket]] = []
    """All of a test, which are closed behind it."""

    def __init__(self, space: netns.Namespace) -> None:
        with space.entered():
            self.socket = socket.create_connection((OURS, PORT), timeout=60)
        self.opened.append(self.socket)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def end(self) -> None:
        """The server is not there any more to say so."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def send(self, *words: bytes | str | int) -> None:
        self.socket.sendall(encode(*words))

    def reply(self) -> Reply:
        """The next reply. ConnectionError: the server has gone."""
        while (one := parse(self._rest) if self._rest else None) is None:
            part = self.socket.recv(1 << 16)
            if not part:
                raise ConnectionResetError("the server hung up")
            self._rest += part
        self._rest = self._rest[one[1] :]
        return one[0]

    def call(self, *words: bytes | str | int) -> Reply:
        self.send(*words)
        return self.reply()


@pytest.fixture
def space() -> Iterator[netns.Namespace]:
    if missing := netns_missing():
        pytest.skip(missing)
    with netns.namespace("resplog") as made:
        yield made
    while Link.opened:
        Link.opened.pop().close()


class Host:
    """A server of its own process on a log. `found`: records, bytes, cut."""

    def __init__(self, space: netns.Namespace, path: Path, **options: int) -> None:
        words = [f"{name}={value}" for name, value in options.items()]
        command = space.command([sys.executable, str(HOST), str(path), *words])
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        word, *numbers = self._process.stdout.readline().split()
        assert word == "ready"
        self.found = [int(n) for n in numbers]

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def end(self) -> None:
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0


class Writer(threading.Thread):
    """A client that writes keys of its own, and knows what was acknowledged and what was asked for behind it."""

    def __init__(self, link: Link, number: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.link, self.number, self.rng = link, number, random.Random(seed)
        self.counter = self.length = self.acknowledged = 0
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                size = self.rng.choice([1, 100, 5000])
                for words in (
                    ("MULTI",),
                    ("INCR", f"n{self.number}"),
                    ("RPUSH", f"l{self.number}", "x" * size),
                    ("EXEC",),
                ):
                    self.link.send(*words)
                self.counter += 1
                for _ in range(3):
                    self.link.reply()
                done = self.link.reply()
                assert done.kind == "*", done
                assert done.value[0].value == self.counter
                self.acknowledged = self.counter


@pytest.mark.root
@pytest.mark.soak(short=True, takes_s=12)
def test_what_was_acknowledged_survives_kills_under_load(space: netns.Namespace, tmp_path: Path) -> None:
    """A transaction is there whole or not at all; those that were answered are, in their order; rewrites go on."""
    seed = int(os.environ.get("CORELANE_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    print(f"CORELANE_SEED={seed}")
    rng = random.Random(seed)
    counts = [0] * 6
    for turn in range(soak.examples(4, 60)):
        host = Host(space, tmp_path / "log", log_mib=8, in_call=turn % 2)
        try:
            check = Link(space)
            for i, least in enumerate(counts):
                value = int(check.call("GET", f"n{i}").value or 0)
                assert least <= value <= least + 1, (turn, i)
                assert check.call("LLEN", f"l{i}").value == value, (turn, i)
                check.call("DEL", f"n{i}", f"l{i}")
            writers = [Writer(Link(space), i, rng.random()) for i in range(len(counts))]
            goal = rng.randint(1, 400)
            wait_until(lambda w=writers, n=goal: sum(one.acknowledged for one in w) >= n, 60.0, "enough transactions")
        finally:
            host.kill()
        for writer in writers:
            writer.link.end()
            writer.join(60)
            assert not writer.is_alive()
        counts = [writer.acknowledged for writer in writers]


@pytest.mark.root
def test_a_restart_finds_all_and_the_log_stays_short(space: netns.Namespace, tmp_path: Path) -> None:
    """More is written than the log has room for: rewrites keep it short."""
    host = Host(space, tmp_path / "log", log_mib=8)
    link = Link(space)
    for i in range(40):
        for _ in range(8):
            link.send("SET", f"k{i % 10}", str(i) * 20_000)
        for _ in range(8):
            assert link.reply().value == b"OK"
    link.call("CONFIG", "SET", "auto-aof-rewrite-percentage", 0)
    before = int(link.call("LASTSAVE").value)
    assert before > 0

    def info() -> dict[str, str]:
        text = link.call("INFO", "persistence").value.decode()
        return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)

    def rests() -> bool:
        said = info()
        return said["aof_rewrite_in_progress"] == said["aof_rewrite_scheduled"] == "0"

    wait_until(rests, 60.0, "the rewrites that began by themselves")
    assert link.call("BGREWRITEAOF").value == b"Background append only file rewriting started"
    wait_until(rests, 60.0, "a rewrite")
    assert int(info()["aof_rewrites"]) >= 2
    assert int(info()["aof_current_size"]) < 2 << 20
    host.end()
    host = Host(space, tmp_path / "log")
    link = Link(space)
    for i in range(10):
        assert link.call("GET", f"k{i}").value == (str(30 + i) * 20_000).encode()
    host.end()


@contextlib.contextmanager
def served(space: netns.Namespace, log: Log, kthreads: int = 1, **options: Any) -> Iterator[RespService]:
    with space.entered():
        nic = Tap(address=f"{LINUX}/24", ipv4=f"{OURS}/24", queues=kthreads)
    with nic, Runtime(nic=nic, address=f"{OURS}/24", kthreads=kthreads, poll="block") as runtime:
        service = RespService(runtime, Options(memory_bytes=8 << 20, **options), log)
        runtime.start()
        try:
            yield service
        finally:
            runtime.stop()
            with contextlib.suppress(CorelaneError):  # of a log that has failed
                service.close()


@pytest.mark.root
@pytest.mark.parametrize(("kthreads", "in_call"), [(1, True), (1, False), (2, True)])
def test_a_kthread_that_is_alone_writes_in_the_call(
    space: netns.Namespace, tmp_path: Path, kthreads: int, in_call: bool
) -> None:
    """Others, and one that is told not to, write by a ring."""
    create(tmp_path / "log", 8 << 20)
    with FileBlk(tmp_path / "log") as disk:
        info = disk.info()
        if info.engine != "uring" or not info.dsync:
            pytest.skip(f"no durable write by a ring here: {info.why}")
        format_area(disk)
        with Log(disk) as log, served(space, log, kthreads, in_call=in_call) as service:
            links = [Link(space) for _ in range(4)]
            for i in range(20):
                for link in links:
                    link.send("INCR", "n")
                for link in links:
                    assert 4 * i < link.reply().value <= 4 * i + 4
            stats = service.stats()
            assert stats["log_batches"] > 0
            assert (stats["log_in_call"] > 0) == (stats["log_call_ns"] > 0) == (in_call and kthreads == 1)


@pytest.mark.root
def test_a_disk_that_fails_ends_writes_and_not_reads(space: netns.Namespace) -> None:
    with FaultBlk(memory_blk(8 << 20)) as disk:
        format_area(disk)
        with served(space, Log(disk)):
            link, other = Link(space), Link(space)
            assert link.call("SET", "k", 1).value == b"OK"
            disk.set(BlkFaults(write_error=1.0))
            with pytest.raises(OSError):
                link.call("SET", "k", 2)
            refused = other.call("SET", "k", 3)
            assert refused.kind == "-"
            assert refused.value.startswith(b"MISCONF Errors writing to the AOF file: ")
            assert other.call("PING").value == b"PONG"
            assert other.call("GET", "k").value in (b"1", b"2")


@contextlib.contextmanager
def no_writes_to_files() -> Iterator[None]:
    """The kernel refuses them to this process, with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.root
def test_a_disk_that_fails_in_the_call_ends_writes_and_not_reads(space: netns.Namespace, tmp_path: Path) -> None:
    """None of those who wait is answered; a restart finds what was acknowledged."""
    path = tmp_path / "log"
    create(path, 8 << 20)
    with FileBlk(path) as disk:
        info = disk.info()
        if info.engine != "uring" or not info.dsync:
            pytest.skip(f"no durable write by a ring here: {info.why}")
        format_area(disk)
        log = Log(disk)
        opened = log.stats()["superblocks"]
        with served(space, log) as service:
            links = [Link(space) for _ in range(4)]
            assert links[0].call("SET", "k", 1).value == b"OK"
            wait_until(lambda: log.stats()["superblocks"] == opened + 2, 60.0, "what confirms it")
            before = service.stats()
            assert before["log_in_call"] == 1  # however long it took, the next is one, too
            with no_writes_to_files():
                for link in links[:3]:
                    link.send("SET", "k", 2)
                for link in links[:3]:
                    with contextlib.suppress(OSError):
                        refused = link.reply()  # it came when the others' write had failed
                        assert refused.value.startswith(b"MISCONF Errors writing to the AOF file: ")
                assert links[3].call("SET", "k", 3).value.startswith(b"MISCONF Errors writing to the AOF file: ")
            assert links[3].call("GET", "k").value in (b"1", b"2")
            after = service.stats()
            assert after["log_in_call"] > before["log_in_call"]
            assert after["log_units"] == before["log_units"]
    with FileBlk(path) as disk, Log(disk) as log, Engine(1 << 20, seed=1) as engine:
        recover(engine, log)
        assert ask(engine.client(), "GET", "k") in (b"1", b"2")


@pytest.mark.root
def test_a_log_that_is_full_refuses_until_something_is_deleted(space: netns.Namespace) -> None:
    with memory_blk(1 << 20) as disk:
        format_area(disk)
        with served(space, Log(disk)):
            link, value = Link(space), "x" * 10_000
            stored = 0
            while (said := link.call("SET", f"k{stored}", value)).kind != "-":
                stored += 1
                assert stored < 200
            assert said.value == b"MISCONF Errors writing to the AOF file: No space left on device"
            assert stored > 10
            assert link.call("GET", "k0").value == value.encode()
            assert link.call("DEL", *[f"k{i}" for i in range(stored)]).value == stored
            link.call("BGREWRITEAOF")
            wait_until(lambda: link.call("SET", "k", value).kind != "-", 60.0, "room")


def test_a_torn_batch_is_cut_off(tmp_path: Path) -> None:
    """Pieces whose last one is missing were never acknowledged; what is written behind them is not joined to them."""
    path = str(tmp_path / "log")
    units = encode("SET", "a", "1")
    with open_log(path, 4, 1 << 20) as log:
        log.append(units)
        for part in (units[:10], units[10:20]):
            log.append(part, kind=PIECE)
    with open_log(path, 4, 1 << 20) as log, Engine(1 << 20, seed=1) as engine:
        found = recover(engine, log)
        assert (found.records, found.cut) == (1, 2)
        log.append(encode("INCR", "a"))
    with open_log(path, 4, 1 << 20) as log, Engine(1 << 20, seed=1) as engine:
        assert recover(engine, log).cut == 0
        assert [v[-1] for v in state(engine).values()] == [b"2"]


def test_what_cannot_be_replayed_is_refused_with_its_record(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    with open_log(path, 4, 1 << 20) as log:
        log.append(encode("SET", "a", "text"))
        log.append(encode("INCR", "a"))
    with open_log(path, 4, 1 << 20) as log, Engine(1 << 20, seed=1) as engine:
        with pytest.raises(CorelaneError, match="record 2 cannot be applied: the command INCR"):
            recover(engine, log)
        assert ask(engine.client(), "GET", "a") == b"text"


def test_logs_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(CorelaneError, match="4 MiB or more"):
        open_log(str(tmp_path / "log"), 1, 1 << 20)
    with pytest.raises(CorelaneError, match="nowhere"):
        open_log(str(tmp_path / "nowhere" / "log"), 4, 1 << 20)
    (tmp_path / "log.new").write_bytes(b"what a crash left")
    with open_log(str(tmp_path / "log"), 0, 1 << 20) as log:
        assert log.durable_index == 0


def test_a_log_that_another_process_has_made_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that are started at once: the second may not take the place of the file that the first one writes to."""
    path, create = str(tmp_path / "log"), Log.create
    first: list[Log] = []

    def overtaken(made: Path, size: int) -> None:
        create(made, size)
        if not first:
            create(path, size)
            first.append(Log.open(path))
            first[0].append(b"of the first one")

    monkeypatch.setattr(Log, "create", staticmethod(overtaken))
    with pytest.raises(CorelaneError, match="log"):  # the first one has it
        open_log(path, 4, 1 << 20)
    first[0].close()
    with open_log(path, 4, 1 << 20) as log:
        assert [record.data for record in log.records()] == [b"of the first one"]
    assert os.listdir(tmp_path) == ["log"]
