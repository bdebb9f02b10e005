"""Shared memory files: seals, huge pages, descriptors over sockets, and what they use."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
from pathlib import Path

import pytest
from cltest import open_descriptors

from corelane.runtime.errors import CorelaneError, Gone, ProtocolError, SystemLimit
from corelane.runtime.memory import Memory, process_memory, receive_fds, send_fds

PAGE = mmap.PAGESIZE
MIB = 1 << 20


def free_huge_pages() -> int:
    """Huge pages free now."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("HugePages_Free"):
            return int(line.split()[1])
    return 0


@pytest.fixture
def pair():
    """Two connected unix sockets."""
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with a, b:
        yield a, b


def test_made_zeroed_and_rounded_up():
    with Memory.create("t", PAGE + 1) as m:
        assert m.size_bytes == 2 * PAGE
        assert bytes(m.buffer) == bytes(2 * PAGE)
        m.buffer[0:3] = b"abc"
        assert os.pread(m.fd, 3, 0) == b"abc"
        assert "memfd:t" in os.readlink(f"/proc/self/fd/{m.fd}")
        assert fcntl.fcntl(m.fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_its_size_can_never_change():
    with Memory.create("t", PAGE) as m:
        for size in (0, 2 * PAGE):
            with pytest.raises(PermissionError):
                os.ftruncate(m.fd, size)
        with pytest.raises(PermissionError):
            fcntl.fcntl(m.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def test_peers_may_be_limited_to_reading():
    with Memory.create("t", PAGE, peers_read_only=True) as m:
        m.buffer[0:1] = b"x"
        for how in ({"prot": mmap.PROT_WRITE | mmap.PROT_READ}, {"access": mmap.ACCESS_WRITE}):
            with pytest.raises(PermissionError):
                mmap.mmap(m.fd, PAGE, flags=mmap.MAP_SHARED, **how)
        with pytest.raises(PermissionError):
            os.pwrite(m.fd, b"y", 0)
        fd = os.dup(m.fd)
        with pytest.raises(SystemLimit, match="read-only only"):
            Memory.map(fd, PAGE, writable=True)
        with Memory.map(fd, PAGE, writable=False) as peer:
            assert peer.buffer[0:1] == b"x"
            m.buffer[0:1] = b"z"
            assert peer.buffer[0:1] == b"z"


def test_a_peer_maps_the_same_memory():
    with Memory.create("t", PAGE) as m, Memory.map(os.dup(m.fd), PAGE, writable=True) as peer:
        peer.buffer[10:14] = b"ping"
        assert m.buffer[10:14] == b"ping"


def test_files_that_could_shrink_or_are_short_are_refused(tmp_path):
    unsealed = os.memfd_create("u", os.MFD_CLOEXEC)
    os.ftruncate(unsealed, PAGE)
    plain = os.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
    try:
        for fd in (unsealed, plain):
            with pytest.raises(SystemLimit, match="may shrink"):
                Memory.map(fd, PAGE, writable=True)
        with Memory.create("t", PAGE) as m:
            for announced in (PAGE + 1, 0):
                with pytest.raises(ProtocolError, match="were announced"):
                    Memory.map(m.fd, announced, writable=True)
    finally:
        os.close(unsealed)
        os.close(plain)


@pytest.mark.parametrize("size", [0, 1 << 47, -1])
def test_impossible_sizes(size):
    with pytest.raises(CorelaneError, match="make shared memory 't'"):
        Memory.create("t", size)


def test_memory_is_taken_when_touched():
    with Memory.create("t", 4 * MIB) as m:
        assert m.used_bytes() == 0
        m.buffer[MIB : MIB + 1] = b"x"
        assert 0 < m.used_bytes() <= MIB
        with Memory.map(os.dup(m.fd), MIB, writable=True) as peer:
            peer.buffer[2 * MIB : 2 * MIB + 1] = b"x"
        assert m.report()["used_bytes"] > PAGE
        assert m.report()["reserved_bytes"] == 4 * MIB


def test_memory_is_taken_at_once_when_asked():
    with Memory.create("t", 4 * MIB, prefault=True) as m:
        assert m.used_bytes() == 4 * MIB


def test_huge_pages_or_a_reason():
    with Memory.create("t", MIB, huge=True) as m:
        report = m.report()
        if m.huge:
            assert report["page_bytes"] > PAGE
            assert m.size_bytes % report["page_bytes"] == 0
            assert report["why_not_huge"] == ""
        else:
            assert free_huge_pages() == 0
            assert "nr_hugepages" in report["why_not_huge"]
            assert m.size_bytes == MIB
        m.buffer[0:2] = b"ok"
        with pytest.raises(PermissionError):
            os.ftruncate(m.fd, 0)


def test_transparent_huge_pages_are_advice():
    with Memory.create("t", 4 * MIB, thp=True, prefault=True) as m:
        assert m.used_bytes() == 4 * MIB


def test_descriptors_travel(pair):
    a, b = pair
    with Memory.create("t", PAGE) as m:
        m.buffer[0:5] = b"hello"
        send_fds(a, b"take this", [m.fd, m.fd])
        data, fds = receive_fds(b, 100, 2)
        assert data == b"take this"
        assert all(fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC for fd in fds)
        os.close(fds[1])
        with Memory.map(fds[0], PAGE, writable=True) as peer:
            assert peer.buffer[0:5] == b"hello"
    send_fds(a, b"nothing", [])
    assert receive_fds(b, 100, 2) == (b"nothing", [])
    a.close()
    assert receive_fds(b, 100, 2) == (b"", [])


def test_too_many_descriptors_are_closed_and_refused(pair):
    a, b = pair
    before = open_descriptors()
    with open("/dev/null") as null:
        for n in (3, 16):
            send_fds(a, b"x", [null.fileno()] * n)
            with pytest.raises(ProtocolError, match="more than 2"):
                receive_fds(b, 1, 2)
        socket.send_fds(a, [b"x"], [null.fileno()] * 40)
        with pytest.raises(ProtocolError, match="more than 16"):
            receive_fds(b, 1, 16)
        with pytest.raises(CorelaneError):
            send_fds(a, b"x", [null.fileno()] * 17)
    assert open_descriptors() == before


def test_a_peer_that_is_gone(pair):
    a, b = pair
    b.close()
    with pytest.raises(Gone):
        send_fds(a, b"x", [])


def test_close_is_final_and_harmless():
    before = open_descriptors()
    m = Memory.create("t", PAGE)
    m.close()
    m.close()
    assert m.fd == -1
    assert open_descriptors() == before
    with pytest.raises(CorelaneError, match="closed"):
        _ = m.buffer


def test_process_memory():
    before = process_memory()
    assert 0 < before["pss"] <= before["rss"]
    with Memory.create("t", 16 * MIB, prefault=True):
        assert process_memory()["rss"] >= before["rss"] + 12 * MIB
    with pytest.raises(SystemLimit, match="smaps_rollup"):
        process_memory(2**30)
