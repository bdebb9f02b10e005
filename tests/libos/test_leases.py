"""Leases and regions from Python: no view of the bytes ever shows what is not theirs."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest
from cltest import wait_until

from corelane import libos
from corelane.drivers.nic.memory import memory_link
from corelane.libos import leases
from corelane.libos._native import ffi, lib
from corelane.runtime.errors import CorelaneError

ADDRESS = "10.0.0.1"
DATA = bytes(i * 7 & 255 for i in range(100_000))


@pytest.fixture
def runtime() -> Iterator[libos.Runtime]:
    nic, end = memory_link(ipv4=(ADDRESS, None), ipv4_prefix=24)
    with nic, end, libos.Runtime(nic=nic, kthreads=1) as made:
        yield made.start()


@pytest.fixture
def ends(runtime: libos.Runtime) -> tuple[libos.TcpStream, libos.TcpStream]:
    listener = runtime.listen_tcp(7000)
    listener.set(keep_frames=True)
    ours = runtime.connect_tcp((ADDRESS, 7000), timeout_s=10)
    return ours, listener.accept(10)


def out(runtime: libos.Runtime) -> int:
    """Leases that C knows of."""
    counts = ffi.new("struct cl_tcp_counts *")
    lib.cl_runtime_tcp_counts(runtime.ptr, counts)
    return int(counts.leased - counts.unleased)


def test_bytes_come_where_they_lie(runtime: libos.Runtime, ends: tuple[libos.TcpStream, libos.TcpStream]) -> None:
    ours, theirs = ends
    with pytest.raises(TimeoutError):
        theirs.lease(0.01)
    came = b""
    ours.write(DATA)
    ours.shutdown()
    while lease := theirs.lease(10):
        with lease:
            assert lease.data.readonly
            assert len(lease) == len(lease.data)
            assert (len(runtime.leases), out(runtime)) == (1, 1)
            came += lease.data
        assert lease.closed
        lease.close()
    assert came == DATA
    assert (len(runtime.leases), out(runtime)) == (0, 0)


def test_bytes_stay_as_long_as_anybody_sees_them(
    runtime: libos.Runtime, ends: tuple[libos.TcpStream, libos.TcpStream]
) -> None:
    ours, theirs = ends
    for view in (lambda data: data[10:], lambda data: np.frombuffer(data, np.uint8)):
        ours.write(DATA[:1000])
        lease = theirs.lease(10)
        assert lease is not None
        seen = view(lease.data)
        with pytest.raises(CorelaneError, match="arrays made of it, exist"):
            lease.close()
        assert not lease.closed
        with pytest.raises(CorelaneError, match="close the runtime: 1 leases of TCP's bytes are out"):
            runtime.leases.settle(runtime.ptr)
        assert bytes(seen) == DATA[1000 - len(seen) : 1000]
        del seen
        gc.collect()
        assert lease.closed
        assert (len(runtime.leases), out(runtime)) == (0, 0)


def test_a_forgotten_lease_comes_back_by_itself(
    runtime: libos.Runtime, ends: tuple[libos.TcpStream, libos.TcpStream]
) -> None:
    ours, theirs = ends
    ours.write(DATA[:1000])
    lease = theirs.lease(10)
    assert out(runtime) == 1
    del lease
    gc.collect()
    assert (len(runtime.leases), out(runtime)) == (0, 0)


def test_a_runtime_waits_for_its_leases() -> None:
    nic, end = memory_link(ipv4=(ADDRESS, None), ipv4_prefix=24)
    with nic, end:
        runtime = libos.Runtime(nic=nic, kthreads=1).start()
        listener = runtime.listen_tcp(7000)
        ours = runtime.connect_tcp((ADDRESS, 7000), timeout_s=10)
        theirs = listener.accept(10)
        ours.write(DATA[:1000])
        lease = theirs.lease(10)
        assert lease is not None
        with pytest.raises(CorelaneError, match="are out"):
            runtime.close()
        assert lease.data == DATA[:1000]
        lease.close()
        runtime.close()


def test_bytes_go_from_where_they_lie(runtime: libos.Runtime, ends: tuple[libos.TcpStream, libos.TcpStream]) -> None:
    ours, theirs = ends
    memory = bytearray(DATA)
    region = libos.Region(memory)
    with pytest.raises(BufferError):
        memory.append(0)
    ours.write_from(region, timeout_s=10)
    ours.write_from(region, 99_990)
    ours.write_from(region, 10, 20)
    came = b""
    while len(came) < 100_030:
        came += theirs.read(timeout_s=10)
    assert came == DATA + DATA[-10:] + DATA[10:30]
    ours.wait_released(10)
    assert region.lent == 0
    for offset, size in ((0, 100_001), (-1, 1), (100_001, None)):
        with pytest.raises(CorelaneError):
            ours.write_from(region, offset, size)
    region.close()
    region.close()
    memory.append(0)
    with pytest.raises(CorelaneError, match="it is closed"):
        ours.write_from(region)


def test_a_poll_set_waits_for_what_is_released(
    runtime: libos.Runtime, ends: tuple[libos.TcpStream, libos.TcpStream]
) -> None:
    ours, theirs = ends
    with libos.Region(DATA) as region, runtime.open_poll() as poll:
        poll.add(ours, released=True)
        assert poll.wait(0) == []
        ours.write_from(region, 0, 5000, timeout_s=10)
        came = b""
        while len(came) < 5000:
            came += theirs.read(timeout_s=10)
        while ours.released() < 5000:
            assert poll.wait(60) == [ours]
        assert ours.released() == 5000
        assert poll.wait(0) == []


def test_a_region_stays_while_it_is_lent(runtime: libos.Runtime, ends: tuple[libos.TcpStream, libos.TcpStream]) -> None:
    ours, theirs = ends
    region = libos.Region(np.zeros(4_000_000, np.uint8))
    with pytest.raises(TimeoutError, match="took"):
        ours.write_from(region, timeout_s=0.05)
    with pytest.raises(TimeoutError):
        ours.wait_released(0.01)
    with pytest.raises(CorelaneError, match="bytes of it are not acknowledged"):
        region.close()
    del region  # it lives on, for the connection
    gc.collect()
    assert [left.lent > 0 for left in leases._left] == [True]
    theirs.abort()
    wait_until(lambda: leases._left[0].lent == 0, 60, "the reset to come")
    libos.Region(b"x").close()
    assert leases._left == []


@pytest.mark.parametrize("data", [b"", "text", 5, memoryview(np.zeros((4, 4))[:, 1])])
def test_what_is_no_region(data: object) -> None:
    with pytest.raises(CorelaneError, match="make a region"):
        libos.Region(data)
