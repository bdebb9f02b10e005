"""A runtime as an application of an iokernel: the same handlers, and an iokernel that dies."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cltest import wait_until
from cltest.outside import CLIENT
from cltest.packets import Host, arp, ethernet, read_datagram

from corelane import libos
from corelane.apps.echo import handler as echo_handler
from corelane.drivers.port.port import open_port
from corelane.iokernel import Allowance, AppConfig, NetworkConfig, UserConfig
from corelane.libos._native import ffi, lib
from corelane.runtime.errors import CorelaneError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kind", ["c", "numba", "python"])
def test_echo_through_an_iokernel(outside: Any, kind: str) -> None:
    wire, path, start = outside
    start()
    with libos.Runtime(path, name=f"echo-{kind}", kthreads=2 if kind == "c" else 1) as runtime:
        runtime.bind(echo_handler(kind))
        runtime.start()
        server = wire.resolve(runtime.address)
        assert (server.mac, server.ip) == (runtime.mac, runtime.address)
        assert runtime.attached
        for n in (1, 22, 300, 1400):
            payload = random.Random(n).randbytes(n)
            assert wire.ask(server, payload) == payload
        runtime.stop()
        stats = runtime.stats()
        assert stats.balanced
        assert stats.net["replied"] == 4


def test_a_restart_attaches_again_and_one_that_cannot_leaves_it_closed(outside: Any) -> None:
    wire, path, start = outside
    kernel = start()
    runtime = libos.Runtime(path, name="again")
    runtime.bind(echo_handler("c"))
    runtime.start()
    before = runtime.address
    for n in range(3):
        server = wire.resolve(runtime.address)
        assert wire.ask(server, b"%d" % n) == b"%d" % n
        runtime = runtime.restart()
    assert runtime.address == before
    kernel.stop()
    with pytest.raises(CorelaneError, match="no iokernel listens"):
        runtime.restart()
    with pytest.raises(CorelaneError, match="it is closed"):
        runtime.start()


def test_a_handler_appends_to_a_log_through_an_iokernel(outside: Any, tmp_path: Path) -> None:
    """Where the iokernel has the cores, too, and a kthread that waits for the disk gives its core away."""
    wire, path, start = outside
    start()
    import numpy as np

    from corelane.libos.numba import calls
    from corelane.libos.storage.log.log import Log

    state = np.zeros(1, np.uint64)

    @libos.udp(9000, state=state, cache=False)
    def journal(request: Any, reply: Any, state: Any) -> int:
        calls.put_be64(reply, 0, calls.log_append(state[0], request))
        return 8

    Log.create(tmp_path / "log", 1 << 20)
    with Log.open(tmp_path / "log") as log:
        with libos.Runtime(path, name="journal", kthreads=2) as runtime:
            state[0] = runtime.share(log).address
            runtime.bind(journal)
            runtime.start()
            server = wire.resolve(runtime.address)
            for n in range(1, 21):
                assert wire.ask(server, b"record %d" % n) == n.to_bytes(8)
        assert [r.data for r in log.records()] == [b"record %d" % n for n in range(1, 21)]


def test_a_burst_beyond_a_rate_limit_is_sent_to_the_end(outside: Any) -> None:
    """The token bucket fills the application's ring; what waits behind it leaves although no request comes any more."""
    wire, path, start = outside
    start(apps={"slow": AppConfig(rate_frames_per_s=2000, burst_frames=1, tx_slots=32)})
    with libos.Runtime(path, name="slow", poll="block") as runtime:
        runtime.bind(echo_handler("c"))
        runtime.start()
        server = wire.resolve(runtime.address)
        n = 32 + 64 + 100
        for i in range(n):
            assert wire.nic.send(CLIENT.datagram(server, i.to_bytes(2))) == 1
        runtime.wait_until(lambda stats: stats.net["replied"] == n, 60)
        got: list[bytes] = []

        def all_sent() -> bool:
            got.extend(f for f in wire.nic.recv() if f[12:14] == b"\x08\x00")
            return len(got) + runtime.stats().net["tx_dropped_full"] == n

        wait_until(all_sent, 60, lambda: f"{n} replies, have {len(got)}: {runtime.stats()}")
        assert len(got) > 32 + 32  # a full ring, and much of what waited behind it
        assert len({read_datagram(f).payload for f in got}) == len(got)


def test_the_gateway_that_the_iokernel_grants_is_used(outside: Any) -> None:
    """A destination beyond the subnet: the application asks for the gateway by ARP and sends the frame to its MAC."""
    wire, path, start = outside
    start(network=NetworkConfig(gateway="10.77.0.99"))
    import numpy as np

    from corelane.libos.numba import calls

    state = np.zeros(1, np.uint64)

    def pass_on(request: Any, reply: Any, s: Any) -> int:
        calls.udp_send(s[0], np.uint32(0xC0000207), 9000, request)
        return 0

    with libos.Runtime(path, name="far") as runtime:
        state[0] = runtime.open_udp().address
        runtime.bind(libos.udp(9000, state=state)(pass_on))
        runtime.start()
        server = wire.resolve(runtime.address)
        wire.nic.send(CLIENT.datagram(server, b"beyond"))
        frames: list[bytes] = []

        def look() -> bool:
            for f in wire.nic.recv():
                if f[12:14] == b"\x08\x06" and f[20:22] == b"\0\1" and f[38:42] == bytes([10, 77, 0, 99]):
                    answer = arp(2, CLIENT.mac, CLIENT.ip, server.mac, server.ip)
                    wire.nic.send(ethernet(answer, CLIENT.mac, server.mac, 0x0806))
                elif f[12:14] == b"\x08\x00":
                    frames.append(f)
            return bool(frames)

        wait_until(look, 60, "the datagram for 192.0.2.7")
        sent = read_datagram(frames[0])
        assert (sent.dst, sent.payload) == ("192.0.2.7", b"beyond")
        assert frames[0][:6] == bytes.fromhex(CLIENT.mac.replace(":", ""))


def test_two_applications_by_their_sockets(outside: Any) -> None:
    """One application asks another through the switch, with ARP between them, and no uplink takes part."""
    _, path, start = outside
    start()
    import numpy as np

    from corelane.libos.numba import calls

    state = np.zeros(4, np.uint64)

    def ask(request: Any, reply: Any, s: Any) -> int:
        calls.udp_send(s[0], np.uint32(s[1]), 9000, request)
        return int(calls.udp_recv(s[0], reply, 5_000_000_000))

    with libos.Runtime(path, name="inner") as inner, libos.Runtime(path, name="front") as front:
        inner.bind(echo_handler("c"))
        inner.start()
        socket = front.open_udp()
        state[0] = socket.address
        state[1] = int.from_bytes(bytes(map(int, inner.address.split("."))), "big")
        front.bind(libos.udp(9000, state=state)(ask))
        front.start()
        wire = outside[0]
        server = wire.resolve(front.address)
        assert wire.ask(server, b"pass it on") == b"pass it on"
        inner.wait_until(lambda s: s.net["replied"] == 1)


def test_an_iokernel_that_goes_and_one_that_comes(outside: Any) -> None:
    """The runtime says in one line each what happened, keeps its handlers and sockets, and serves the next iokernel."""
    _, path, start = outside
    events: list[tuple[str, str]] = []
    first = start()
    with libos.Runtime(path, name="patient", on_event=lambda name, text: events.append((name, text))) as runtime:
        runtime.bind(echo_handler("c"))
        runtime.start()
        address, mac = runtime.address, runtime.mac
        first.stop()
        wait_until(lambda: runtime.gone, 60, "the runtime to notice")
        second = start()
        wait_until(lambda: not runtime.gone, 60, "the runtime to attach again")
        assert (runtime.address, runtime.mac) == (address, mac)
        with libos.Runtime(path, name="neighbour") as other:
            other.start()
            wait_until(lambda: len(second.apps) == 2, 60, "both applications")
        names = [name for name, _ in events if name in ("gone", "attached")]
        assert names[-2:] == ["gone", "attached"]
        assert all("\n" not in text and text for _, text in events)


def test_who_wished_for_more_is_told_once_and_again_when_it_gets_something_else(outside: Any) -> None:
    _, path, start = outside
    events: list[tuple[str, str]] = []
    managed = {"worker_cpus": [max(os.sched_getaffinity(0))], "policy": "delay"}
    kernel = start(**managed)
    share = libos.CoreShare(weight=7, guaranteed=1)
    with libos.Runtime(path, name="greedy", share=share, on_event=lambda *told: events.append(told)) as runtime:
        assert [name for name, _ in events] == ["limited"]
        assert events[0][1].startswith("it has weight 1 instead of 7, guaranteed cores 0 instead of 1: to allow more")
        for may, said in ((UserConfig(), ""), (UserConfig(weight=3), "it has weight 3 instead of 7")):
            kernel.stop()
            wait_until(lambda: runtime.gone, 60, "the runtime to notice")
            kernel = start(**managed, allowance=Allowance(user_defaults=may))
            wait_until(lambda: events[-1][0] == "attached", 60, "the runtime to attach again")
            assert said in events[-1][1]
            assert ("instead of" in events[-1][1]) == bool(said)
    assert [name for name, _ in events].count("limited") == 1


def test_who_wished_for_more_is_told_where_no_policy_moves_cores(outside: Any) -> None:
    _, path, start = outside
    start()
    events: list[tuple[str, str]] = []
    for share, said in (
        (libos.CoreShare(weight=7, guaranteed=1), "weight 7, guaranteed cores 1"),
        (libos.CoreShare(weight=1, max_cores=1), ""),
    ):
        events.clear()
        with libos.Runtime(path, name="greedy", share=share, on_event=lambda *told: events.append(told)):
            wanted = [("limited", f"no policy moves cores here, so it has not: {said}")] if said else []
            assert [(name, text.partition(";")[0]) for name, text in events] == wanted


def _kthread_cpus() -> list[set[int]]:
    """Where the kthreads of this process may run."""
    found = []
    for task in sorted(Path("/proc/self/task").iterdir()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            if (task / "comm").read_bytes().startswith(b"cl-kthread"):
                found.append(os.sched_getaffinity(int(task.name)))
    return found


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("fixed", [False, True], ids=["of the iokernel", "of the application"])
def test_without_a_policy_kthreads_go_where_the_iokernel_of_today_puts_them(outside: Any, fixed: bool) -> None:
    """And anywhere while there is none. But not if the application has said where."""
    _, path, start = outside
    everywhere = os.sched_getaffinity(0)
    one, other = sorted(everywhere)[:2]
    kernel = start(worker_cpus=[one])
    with libos.Runtime(path, name="placed", cpus=[one] if fixed else None, on_event=lambda *_: None) as runtime:
        runtime.start()
        assert _kthread_cpus() == [{one}]
        kernel.stop()
        wait_until(lambda: runtime.gone, 60, "the runtime to notice")
        wait_until(lambda: _kthread_cpus() == [{one} if fixed else everywhere], 60, "kthreads to go anywhere")
        start(worker_cpus=[other])
        wait_until(lambda: not runtime.gone, 60, "the runtime to attach again")
        wait_until(lambda: _kthread_cpus() == [{one if fixed else other}], 60, "kthreads to go where they are put")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_kthreads_go_where_they_are_put_when_the_next_iokernel_has_no_policy(outside: Any) -> None:
    """They were the last one's to move. The other way round the application is told that it is left out."""
    _, path, start = outside
    one, other = sorted(os.sched_getaffinity(0))[:2]
    texts: list[str] = []
    kernel = start(worker_cpus=[one], policy="delay")
    with libos.Runtime(path, name="moved", on_event=lambda _name, text: texts.append(text)) as runtime:
        runtime.start()
        kernel.stop()
        wait_until(lambda: runtime.gone, 60, "the runtime to notice")
        kernel = start(worker_cpus=[other])
        wait_until(lambda: _kthread_cpus() == [{other}], 60, "kthreads to go where they are put")
    with libos.Runtime(path, name="stays", on_event=lambda _name, text: texts.append(text)) as runtime:
        runtime.start()
        kernel.stop()
        wait_until(lambda: runtime.gone, 60, "the runtime to notice")
        start(worker_cpus=[one], policy="delay")
        wait_until(lambda: "but not of this application until that is started anew" in texts[-1], 60, "to be told")


def test_a_runtime_that_nobody_listens_to_says_what_was_not_granted(outside: Any) -> None:
    """As a C program may be, which gave no on_event."""
    _, path, start = outside
    managed = {"worker_cpus": [max(os.sched_getaffinity(0))], "policy": "delay"}
    kernel = start(**managed)
    config, out = ffi.new("struct cl_runtime_config *"), ffi.new("struct cl_runtime **")
    info, err = ffi.new("struct cl_runtime_info *"), ffi.new("char[256]")
    socket, name = ffi.new("char[]", path.encode()), ffi.new("char[]", b"deaf")
    config.socket_path, config.name, config.weight = socket, name, 7

    def note() -> str:
        lib.cl_runtime_info(out[0], info)
        return str(ffi.string(info.note).decode())

    assert lib.cl_runtime_new(config, out, err) == 0, ffi.string(err)
    try:
        assert note().startswith("it has weight 1 instead of 7: to allow more")
        assert lib.cl_runtime_start(out[0], err) == 0, ffi.string(err)
        kernel.stop()
        start(**managed, allowance=Allowance(user_defaults=UserConfig(weight=7)))
        wait_until(lambda: note() == "", 60, "what the next iokernel grants")
    finally:
        lib.cl_runtime_delete(out[0])


def test_requests_are_served_after_the_iokernel_was_killed(outside: Any) -> None:
    """SIGKILL, in the middle of traffic between two applications; the next iokernel has a wire and is asked there."""
    wire, path, start = outside
    program = ROOT / "tests" / "iokernel" / "programs" / "iokernel.py"
    first = subprocess.Popen([sys.executable, str(program), path], stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "ready\n"
        with libos.Runtime(path, name="survivor", kthreads=2, on_event=lambda *_: None) as runtime:
            runtime.bind(echo_handler("c"))
            runtime.start()
            address, mac = runtime.address, runtime.mac
            with open_port(path, name="asker", reattach_s=0) as asker:
                asker.send([Host(asker.mac, str(asker.ipv4)).datagram(Host(mac, address), b"under way")] * 64)
                wait_until(lambda: runtime.stats().net["replied"] > 0, 60, "a reply")
                first.kill()
                first.wait(60)
            wait_until(lambda: runtime.gone, 60, "the runtime to notice")
            start()
            wait_until(lambda: not runtime.gone, 60, "the runtime to attach again")
            server = wire.resolve(address)
            assert (server.mac, server.ip) == (mac, address)
            for n in (1, 22, 300, 1400):
                payload = random.Random(n).randbytes(n)
                assert wire.ask(server, payload) == payload
    finally:
        first.kill()
        first.wait()
        first.stdout.close()


@contextlib.contextmanager
def _killable(path: str, *options: str) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """A function that starts an iokernel's process, one at a time. options: of iokernel.py, beside the path."""
    program = ROOT / "tests" / "iokernel" / "programs" / "iokernel.py"
    running: list[subprocess.Popen[str]] = []

    def start() -> subprocess.Popen[str]:
        running.append(
            subprocess.Popen([sys.executable, str(program), path, *options], stdout=subprocess.PIPE, text=True)
        )
        assert running[-1].stdout is not None
        assert running[-1].stdout.readline() == "ready\n"
        return running[-1]

    try:
        yield start
    finally:
        for process in running:
            process.kill()
            process.wait()
            process.stdout.close()


def _kill(process: subprocess.Popen[str], *runtimes: libos.Runtime) -> None:
    process.kill()
    process.wait(60)
    for runtime in runtimes:
        wait_until(lambda r=runtime: r.gone, 60, "the runtime to notice")


class _Transfer:
    """Bytes from one end of a connection to the other, by a thread each, until `finish`. came: bytes that have come."""

    def __init__(self, sender: libos.TcpStream, reader: libos.TcpStream) -> None:
        self._sender, self._reader = sender, reader
        self._sent, self._got = hashlib.sha256(), hashlib.sha256()
        self._enough = threading.Event()
        self.came = 0
        self._threads = [threading.Thread(target=f, daemon=True) for f in (self._write, self._read)]
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        bytes_of = random.Random(1)
        while not self._enough.is_set():
            block = bytes_of.randbytes(100_000)
            self._sender.write(block, timeout_s=60)
            self._sent.update(block)
        self._sender.shutdown()

    def _read(self) -> None:
        while part := self._reader.read(timeout_s=60):
            self._got.update(part)
            self.came += len(part)

    def finish(self) -> bool:
        """Whether all came, once and in order."""
        self._enough.set()
        for thread in self._threads:
            thread.join(60)
        return self.came > 0 and self._sent.digest() == self._got.digest()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="each core is one application's"),
        pytest.param(
            ("adaptive", str(max(os.sched_getaffinity(0)))),
            id="a core is moved",
            marks=pytest.mark.soak(short=False, takes_s=5),
        ),
    ],
)
def test_connections_survive_a_restart_of_the_iokernel(outside: Any, options: tuple[str, ...]) -> None:
    """A transfer goes on where it was, an idle one is still there; one with a short user time-out ends by that.

    A lease of what the old iokernel has brought keeps its bytes. Both ends are applications, so nobody else's frames
    tell them that the new iokernel is there.
    """
    _, path, _ = outside
    with _killable(path, *options) as start:
        first = start()
        with (
            libos.Runtime(path, name="sender", on_event=lambda *_: None) as ours,
            libos.Runtime(path, name="reader", on_event=lambda *_: None) as theirs,
        ):
            ours.start()
            theirs.start()
            listener = theirs.listen_tcp(7000)
            two = [(ours.connect_tcp((theirs.address, 7000), timeout_s=20), listener.accept(20)) for _ in range(3)]
            two[2][0].set(user_timeout_ms=100)
            two[1][1].set(keep_frames=True)
            two[1][0].write(b"kept" * 200)
            lease = two[1][1].lease(20)
            assert lease is not None
            transfer = _Transfer(*two[0])
            wait_until(lambda: transfer.came > 1_000_000, 60, "some of it")
            _kill(first, ours, theirs)
            two[2][0].write(b"nobody hears this")
            with pytest.raises(CorelaneError) as over:
                two[2][0].read(timeout_s=20)
            assert over.value.errno == errno.ETIMEDOUT
            came = transfer.came
            start()
            wait_until(lambda: not (ours.gone or theirs.gone), 60, "the runtimes to attach again")
            wait_until(lambda: transfer.came > came + 1_000_000, 60, "more of it")
            assert transfer.finish()
            assert lease.data == b"kept" * 200
            lease.close()
            two[1][0].write(b"still there")
            assert two[1][1].read(timeout_s=20) == b"still there"


def test_who_only_sends_sends_by_the_next_iokernel_at_once(outside: Any) -> None:
    """It hears from nobody, and has buffers at hand that the next one does not take."""
    _, path, _ = outside
    with _killable(path) as start:
        first = start()
        with (
            libos.Runtime(path, name="sender", on_event=lambda *_: None) as ours,
            libos.Runtime(path, name="reader", on_event=lambda *_: None) as theirs,
        ):
            ours.start()
            theirs.start()
            reader, sender = theirs.open_udp(7000), ours.open_udp(7000)
            sender.send(b"first", (theirs.address, 7000))
            assert reader.receive(20)[0] == b"first"
            _kill(first, ours, theirs)
            start()
            wait_until(lambda: not (ours.gone or theirs.gone), 60, "the runtimes to attach again")
            sender.send(b"second", (theirs.address, 7000))
            assert reader.receive(20)[0] == b"second"
