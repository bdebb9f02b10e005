"""An iokernel that is killed with SIGKILL: applications notice, say so, and attach to the next one."""

from __future__ import annotations

import contextlib
import itertools
import signal
import socket
import threading
from pathlib import Path

import pytest
from cltest import open_descriptors, wait_until
from cltest.switching import between, collect, ip_int, mac_bytes

from corelane.drivers._native import ffi, lib
from corelane.drivers.port import port as port_module
from corelane.drivers.port.port import open_port
from corelane.iokernel import Iokernel
from corelane.runtime.errors import CorelaneError


def kill(process) -> None:
    process.kill()
    process.wait()


def test_applications_notice_say_so_and_attach_again(child, attach, socket_path):
    first = child("iokernel.py", socket_path)
    said: list[tuple[int, str]] = []
    a = attach("a", on_change=lambda state, text: said.append((state, text)), reattach_s=0.02)
    b = attach("b", kthreads=2, reattach_s=0.02)
    addresses = [(mac_bytes(p), ip_int(p)) for p in (a, b)]
    assert a.send([between(a, b, b"before")] * 10) == 10
    collect(b, 10)
    kill(first)
    wait_until(lambda: a.gone and b.gone)
    wait_until(lambda: said and said[0][0] == port_module.GONE)
    assert said[0][1] == f"the iokernel on {socket_path} is gone: attaching again when one listens there"
    assert a.info().state == port_module.GONE
    # The link is down: frames are taken and dropped, nothing blocks, nothing leaks.
    assert a.send([between(a, b, b"lost")] * 10) == 10
    assert a.stats().tx_dropped_error == 10
    assert a.recv(timeout_s=0.01) == []

    for generation in (2, 3):
        process = child("iokernel.py", socket_path)
        wait_until(lambda n=generation: a.info().attached == n and b.info().attached == n)
        wait_until(lambda: not a.gone and not b.gone)
        assert [(mac_bytes(p), ip_int(p)) for p in (a, b)] == addresses
        frames = [between(a, b, b"after %d" % i, i) for i in range(50)]
        assert a.send(frames) == 50
        assert sorted(collect(b, 50)) == sorted(frames)
        for p in (a, b):
            wait_until(lambda p=p: p.buffers_free == p.buffers)
        assert a.info().iokernel_pid == process.pid
        if generation == 2:
            kill(process)
            wait_until(lambda: a.gone and b.gone)
    wait_until(lambda: said[-1][0] == port_module.ATTACHED)


def test_frames_of_the_old_arena_stay_readable_until_they_are_given_back(child, attach, socket_path):
    first = child("iokernel.py", socket_path)
    a, b = attach("a", reattach_s=0.02), attach("b", reattach_s=0.02)
    frame = between(a, b, b"keep me" * 20)
    assert a.send([frame] * 3) == 3
    held = ffi.new("struct cl_frame[8]")
    got = 0

    def receive() -> bool:
        nonlocal got
        got += lib.cl_nic_rx(b.ptr, 0, held + got, 8 - got)
        return got == 3

    wait_until(receive)
    empty = ffi.new("struct cl_frame[2]")
    assert lib.cl_nic_alloc(b.ptr, 0, empty, 2) == 2
    kill(first)
    wait_until(lambda: b.gone)
    child("iokernel.py", socket_path)
    wait_until(lambda: b.info().attached == 2 and a.info().attached == 2)
    assert a.send(between(a, b, b"new")) == 1
    assert len(collect(b, 1)) == 1
    assert [bytes(ffi.buffer(held[i].data, held[i].len)) for i in range(3)] == [frame] * 3
    # One is sent, as a late answer would be; the others are freed. All of them belong to the old arena.
    before = b.stats().tx_dropped_error
    assert lib.cl_nic_tx(b.ptr, 0, held, 1) == 1
    assert b.stats().tx_dropped_error == before + 1
    lib.cl_nic_free(b.ptr, 0, held + 1, 2)
    lib.cl_nic_free(b.ptr, 0, empty, 2)
    wait_until(lambda: b.buffers_free == b.buffers)


def test_a_sleeper_wakes_when_the_iokernel_dies_and_when_the_next_one_brings_frames(child, attach, socket_path):
    first = child("iokernel.py", socket_path)
    a, b = attach("a", reattach_s=0.02), attach("b", reattach_s=0.02)
    got: list[bytes] = []

    def sleeper() -> None:
        got.extend(b.recv(timeout_s=60))  # sleeps, wakes for the death, sleeps again until a frame comes

    thread = threading.Thread(target=sleeper)
    thread.start()
    parker = b.ptr.ops.parker(b.ptr, 0)
    wait_until(lambda: parker.word[0] == lib.CL_PARK_PARKED)
    kill(first)
    wait_until(lambda: b.gone)
    child("iokernel.py", socket_path)
    wait_until(lambda: a.info().attached == 2 and b.info().attached == 2)
    frame = between(a, b, b"good morning")
    assert a.send(frame) == 1
    thread.join(60)
    assert not thread.is_alive()
    assert got == [frame]


def test_without_reattach_it_stays_gone_until_asked(child, attach, socket_path):
    first = child("iokernel.py", socket_path)
    a = attach("a", reattach_s=0)
    with pytest.raises(CorelaneError, match="still attached"):
        a.reattach()
    kill(first)
    wait_until(lambda: a.gone)
    assert "no packets until this port is attached again" in a.info().text
    with pytest.raises(CorelaneError, match="no iokernel listens"):
        a.reattach()
    second = child("iokernel.py", socket_path)
    a.reattach()
    assert (a.gone, a.info().attached) == (False, 2)
    kill(second)
    wait_until(lambda: a.gone)  # the watcher watches the new one


def test_a_stop_is_told_from_a_death(child, attach, socket_path):
    process = child("iokernel.py", socket_path, "spin")
    said: list[int] = []
    a = attach("a", on_change=lambda state, _text: said.append(state))
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: said == [port_module.STALLED], 60)
    assert not a.gone
    assert "is it stopped" in a.info().text
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: said == [port_module.STALLED, port_module.ATTACHED], 60)


def test_a_stop_is_noticed_while_the_iokernel_sleeps(child, attach, socket_path):
    process = child("iokernel.py", socket_path, "block")
    said: list[int] = []
    attach("a", on_change=lambda state, _text: said.append(state))
    tasks = Path(f"/proc/{process.pid}/task")
    wait_until(lambda: all(" S " in (task / "stat").read_text() for task in tasks.iterdir()))
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: said == [port_module.STALLED], 60)
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: said == [port_module.STALLED, port_module.ATTACHED], 60)


def _maps() -> list[str]:
    """Lines of /proc/self/maps. A library that an earlier test loaded may have a name that is not UTF-8."""
    return Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()


def _mapped_bytes(inode: int) -> int:
    """Of the memory object `inode`, in this process."""
    total = 0
    for line in _maps():
        span, _, _, _, number = line.split()[:5]
        if int(number) == inode:
            start, end = (int(word, 16) for word in span.split("-"))
            total += end - start
    return total


def _inodes(size: int = 0) -> set[int]:
    """Memory objects mapped in this process whole, by a mapping of `size` bytes; 0: all."""
    found = set()
    for line in _maps():
        span, _, _, _, number, *name = line.split()
        start, end = (int(word, 16) for word in span.split("-"))
        if size in (0, end - start) and name and name[0].startswith("/memfd:"):
            found.add(int(number))
    return found


def test_an_old_arena_is_let_go_when_its_last_frame_comes_back(child, attach, socket_path):
    first = child("iokernel.py", socket_path)
    others = _inodes()  # of tests before this one, perhaps
    a = attach("a", reattach_s=0.02)
    size = a.info().arena_bytes
    before = _inodes(size) - others
    held = ffi.new("struct cl_frame[1]")
    assert lib.cl_nic_alloc(a.ptr, 0, held, 1) == 1
    kill(first)
    wait_until(lambda: a.gone)
    child("iokernel.py", socket_path)
    wait_until(lambda: a.info().attached == 2 and not a.gone)
    assert a.recv(timeout_s=0) == []  # each side of the queue moves on
    assert before <= _inodes(size), "mapped as long as a frame of it is out"
    lib.cl_nic_free(a.ptr, 0, held, 1)
    assert a.send(between(a, a, b"x")) == 1
    wait_until(lambda: not before & _inodes(size), 60)


def _shared_mappings() -> int:
    return sum("/memfd:corelane" in line for line in _maps())


def _buffer_address(port) -> int:
    """Where a packet buffer is."""
    frame = ffi.new("struct cl_frame[1]")
    assert lib.cl_nic_alloc(port.ptr, 0, frame, 1) == 1
    lib.cl_nic_free(port.ptr, 0, frame, 1)
    return int(ffi.cast("uintptr_t", frame[0].data))


@pytest.mark.parametrize("policy", [None, "delay"])
def test_nothing_of_a_former_attachment_stays(attach, socket_path, policy):
    """Its addresses are used again."""
    options = {} if policy is None else {"policy": policy, "worker_cpus": [0]}
    io = Iokernel(socket_path, **options)
    io.start()
    a = attach("a", kthreads=2, reattach_s=0.01)
    addresses = [_buffer_address(a)]
    steady: tuple[int, int] | None = None
    for life in range(2, 7):
        io.stop()
        io = Iokernel(socket_path, **options)
        io.start()
        wait_until(lambda n=life: a.info().attached == n and not a.gone)
        for queue in range(2):  # each side of a queue moves on by itself
            a.recv(queue=queue)
            assert a.send(between(a, a, b"x"), queue=queue) == 1
        addresses.append(_buffer_address(a))
        if life == 4:  # two arenas take turns from here on
            steady = open_descriptors(), _shared_mappings()
        elif steady is not None:  # other threads of this process close theirs when they get to it
            wait_until(lambda s=steady: open_descriptors() <= s[0] and _shared_mappings() <= s[1])
    io.stop()
    addresses.sort()
    size = a.info().arena_bytes
    assert sum(after - before > size // 2 for before, after in itertools.pairwise(addresses)) <= 1, addresses


def test_an_arena_with_frames_out_is_not_used_again(attach, socket_path):
    io = Iokernel(socket_path)
    io.start()
    a = attach("a", reattach_s=0.01)
    held = ffi.new("struct cl_frame[1]")
    assert lib.cl_nic_alloc(a.ptr, 0, held, 1) == 1
    ffi.memmove(held[0].data, b"still here", 10)
    for life in range(2, 6):
        io.stop()
        io = Iokernel(socket_path)
        io.start()
        wait_until(lambda n=life: a.info().attached == n and not a.gone)
        a.recv()
        assert a.send(between(a, a, b"x")) == 1
    assert bytes(ffi.buffer(held[0].data, 10)) == b"still here"
    lib.cl_nic_free(a.ptr, 0, held, 1)
    wait_until(lambda: a.recv() is not None and a.buffers_free == a.buffers)
    io.stop()


@pytest.fixture
def mute(socket_path):
    """`connection = mute()`: in place of an iokernel one that accepts, hears HELLO, and never answers."""
    with contextlib.ExitStack() as stack:

        def listen() -> socket.socket:
            Path(socket_path).unlink(missing_ok=True)
            listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(socket_path)
            listener.listen()
            connection = stack.enter_context(listener.accept()[0])
            assert connection.recv(4)
            return connection

        yield listen


def _is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    while True:
        try:
            if not connection.recv(4096):
                return False
        except BlockingIOError:
            return True


def test_an_iokernel_that_does_not_answer_blocks_neither_questions_nor_close(child, socket_path, mute):
    process = child("iokernel.py", socket_path)
    port = open_port(socket_path, name="a", reattach_s=0.01, timeout_s=600)
    kill(process)
    wait_until(lambda: port.gone)
    connection = mute()
    assert port.info().state == port_module.GONE
    assert _is_open(connection), "the handshake was not over when the question was answered"
    port.close()


def test_of_two_that_attach_again_one_is_told(child, attach, socket_path, mute):
    process = child("iokernel.py", socket_path)
    a = attach("a", reattach_s=0, timeout_s=600)
    kill(process)
    wait_until(lambda: a.gone)
    Path(socket_path).unlink()
    refused: list[str] = []

    def wait_for_mute() -> None:
        wait_until(Path(socket_path).exists)
        while not refused or "closed the connection" not in refused[-1]:
            try:
                a.reattach()
            except CorelaneError as error:
                refused.append(str(error))

    thread = threading.Thread(target=wait_for_mute)
    thread.start()
    connection = mute()
    with pytest.raises(CorelaneError, match="another thread is attaching"):
        a.reattach()
    connection.shutdown(socket.SHUT_RDWR)
    thread.join(60)
    assert not thread.is_alive()


def test_closing_while_attaching_again_does_not_hang(child, socket_path):
    process = child("iokernel.py", socket_path)
    a = open_port(socket_path, name="a", reattach_s=0.01)
    kill(process)
    wait_until(lambda: a.gone)
    a.close()


def test_a_manual_reattach_meets_the_watcher_at_any_moment(socket_path, attach):
    """Another thread asks without pause: no end of an attachment may overwrite the next one's beginning."""
    io = Iokernel(socket_path)
    io.start()
    a = attach("a", reattach_s=0)
    over = threading.Event()

    def insist() -> None:
        while not over.is_set():
            with contextlib.suppress(CorelaneError):  # still attached, or nobody listens at the moment
                a.reattach()

    thread = threading.Thread(target=insist)
    thread.start()
    try:
        for life in range(2, 22):
            io.stop()
            io = Iokernel(socket_path)
            io.start()
            wait_until(lambda n=life: a.info().attached == n)
            wait_until(lambda: a.info().state == port_module.ATTACHED and not a.gone)
    finally:
        over.set()
        thread.join()
        io.stop()
    wait_until(lambda: a.info().state == port_module.GONE and a.gone)  # the watcher was watching the last one


def test_a_port_that_tries_by_itself_refuses_to_be_asked(start, attach):
    start()
    a = attach("a", reattach_s=0.02)
    with pytest.raises(CorelaneError, match="tries by itself, every 20 ms"):
        a.reattach()
