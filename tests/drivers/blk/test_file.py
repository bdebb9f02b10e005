"""Files and raw devices: how they are opened, what is refused and said, and what a file that changes beneath does."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from corelane.drivers._native import lib
from corelane.drivers.blk import loop as blk_loop
from corelane.drivers.blk.blk import READ, WRITE, BlkError, Request
from corelane.drivers.blk.file import FileBlk, FileIo, create, grow
from corelane.runtime.errors import CorelaneError

MIB, UNIT = 1 << 20, 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "blocks"
    create(file, MIB)
    return file


@pytest.fixture(params=["uring", "threads"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each engine that there is here."""
    create(tmp_path / "probe", UNIT)
    try:
        FileBlk(tmp_path / "probe", io=FileIo(engine=request.param)).close()
    except CorelaneError as error:
        pytest.skip(str(error))
    finally:
        (tmp_path / "probe").unlink()
    return str(request.param)


def test_a_new_file_is_whole_zero_and_without_holes(tmp_path):
    seen: list[tuple[int, int]] = []
    create(tmp_path / "f", 3 * MIB, lambda done, of: seen.append((done, of)))
    assert seen == [(MIB, 3 * MIB), (2 * MIB, 3 * MIB), (3 * MIB, 3 * MIB)]
    assert (tmp_path / "f").read_bytes() == bytes(3 * MIB)
    with FileBlk(tmp_path / "f") as blk:
        assert not blk.info().holes
        assert blk.size_bytes == 3 * MIB
        assert blk.atomic_bytes in (512, 1024, 2048, 4096)
    assert os.listdir(tmp_path) == ["f"]


def test_what_a_killed_creation_left_is_in_nobodys_way(tmp_path):
    child = textwrap.dedent(
        """
        import os, signal, sys
        from corelane.drivers.blk.file import create
        create(sys.argv[1], 2 << 20, lambda done, of: os.kill(os.getpid(), signal.SIGKILL))
        """
    )
    died = subprocess.run([sys.executable, "-c", child, str(tmp_path / "f")], timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert re.fullmatch(r"f\.\d+\.new", left.name)
    left.rename(tmp_path / f"f.{os.getpid()}.new")  # as a process with our pid would name it
    create(tmp_path / "f", MIB)
    assert (tmp_path / "f").stat().st_size == MIB
    assert sorted(os.listdir(tmp_path)) == ["f", f"f.{os.getpid()}.new"]


# A folder that may be written and not be read cannot be opened, and so not be synced, by who has no capability.
IN_A_FOLDER_THAT_IS_NOT_SYNCED = """
import os, sys
from corelane.drivers.blk.file import create
os.umask(0)
os.mkdir(sys.argv[1], 0o333)
os.chdir(sys.argv[1])
if os.geteuid() == 0:
    os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
create("f", 1 << 20)
"""


def test_a_name_that_a_power_cut_may_take_back_is_not_left(tmp_path: Path) -> None:
    folder = tmp_path / "blind"
    done = subprocess.run(
        [sys.executable, "-c", IN_A_FOLDER_THAT_IS_NOT_SYNCED, str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    folder.chmod(0o755)
    assert "cannot create f: Permission denied" in done.stderr
    assert os.listdir(folder) == []


@pytest.mark.parametrize("size", [-UNIT, 0, 1 << 63, 1 << 64])
def test_a_size_that_no_file_has_is_refused(tmp_path: Path, path: Path, size: int) -> None:
    for make in (lambda: create(tmp_path / "new", size), lambda: grow(path, size)):
        with pytest.raises(CorelaneError, match=f"no file is {size} bytes long"):
            make()
    assert not (tmp_path / "new").exists()
    assert path.stat().st_size == MIB


@pytest.mark.parametrize("block", [512, UNIT, 8192, 65536])
def test_blocks_of_each_size(path: Path, block: int) -> None:
    with FileBlk(path, block_bytes=block) as blk:
        for n in range(20):
            blk.write(n % 3 * block, bytes([n]) * block, durable=True)
            assert blk.read(n % 3 * block, block) == bytes([n]) * block


def test_a_file_that_was_deleted_is_refused(path: Path) -> None:
    with path.open("rb+") as file:
        path.unlink()
        with pytest.raises(CorelaneError, match="was deleted: what is written would go with it") as raised:
            FileBlk(f"/proc/self/fd/{file.fileno()}")
    assert raised.value.errno == errno.ENOENT


def test_why_a_file_is_refused_has_a_number(tmp_path: Path, path: Path) -> None:
    for bad, number in ((tmp_path, errno.EINVAL), (tmp_path / "none", errno.ENOENT), (path, errno.EBUSY)):
        with FileBlk(path), pytest.raises(CorelaneError) as raised:
            FileBlk(bad)
        assert raised.value.errno == number


def test_a_file_that_is_there_is_not_created_again(path):
    path.write_bytes(b"x" * UNIT)
    with pytest.raises(CorelaneError, match="File exists") as caught:
        create(path, MIB)
    assert caught.value.errno == errno.EEXIST
    assert path.read_bytes() == b"x" * UNIT
    assert os.listdir(path.parent) == ["blocks"]


def test_creation_can_be_ended_and_leaves_nothing(tmp_path):
    def stop(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        create(tmp_path / "f", 2 * MIB, stop)
    with pytest.raises(CorelaneError, match="multiple of 4096"):
        create(tmp_path / "f", 1000)
    with pytest.raises(CorelaneError, match=r"No space|too large"):
        create(tmp_path / "f", 1 << 55)
    assert os.listdir(tmp_path) == []


def test_a_file_grows_and_keeps_what_it_holds(path):
    with FileBlk(path) as blk:
        blk.write(0, b"a" * UNIT, durable=True)
    grow(path, 2 * MIB)
    with FileBlk(path) as blk:
        assert blk.size_bytes == 2 * MIB
        assert not blk.info().holes
        assert blk.read(0, 2 * UNIT) == b"a" * UNIT + bytes(UNIT)
        assert blk.read(2 * MIB - UNIT, UNIT) == bytes(UNIT)
    with pytest.raises(CorelaneError, match="more than the old one"):
        grow(path, MIB)
    with pytest.raises(CorelaneError, match="cannot grow"):
        grow(path, 1 << 55)
    assert path.stat().st_size == 2 * MIB


def test_a_file_whose_last_block_is_not_whole_does_not_grow(tmp_path):
    (tmp_path / "f").write_bytes(b"x" * (UNIT + 100))
    with pytest.raises(CorelaneError, match="has 4196 bytes, no multiple of 4096"):
        grow(tmp_path / "f", MIB)
    assert (tmp_path / "f").read_bytes() == b"x" * (UNIT + 100)


def test_holes_are_told_of(tmp_path):
    (tmp_path / "f").touch()
    os.truncate(tmp_path / "f", MIB)
    with FileBlk(tmp_path / "f") as blk:
        assert blk.info().holes


def test_a_file_has_one_user_and_is_free_as_soon_as_it_is_closed(path, engine):
    with FileBlk(path, io=FileIo(engine=engine)), pytest.raises(CorelaneError, match="open in another place"):
        FileBlk(path)
    for _ in range(5):
        with FileBlk(path, io=FileIo(engine=engine)) as blk, FileBlk(path, shared=True) as other:
            blk.write(0, b"b" * UNIT, durable=True)
            assert other.read(0, UNIT) == b"b" * UNIT


def test_an_open_descriptor_will_do(path):
    fd = os.open(path, os.O_RDWR)
    with FileBlk(fd) as blk:
        blk.write(UNIT, b"c" * UNIT, durable=True)
        assert blk.read(UNIT, UNIT) == b"c" * UNIT
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_what_cannot_be_opened_is_refused_with_the_reason(tmp_path, path):
    with pytest.raises(CorelaneError, match=f"^open {tmp_path}/none: No such file or directory$"):
        FileBlk(tmp_path / "none")
    with pytest.raises(CorelaneError, match=f"^open {tmp_path}: it is neither a file nor a block device$"):
        FileBlk(tmp_path)
    with (tmp_path / "small").open("wb") as file:
        file.write(b"x")
        with pytest.raises(CorelaneError, match=f"^open descriptor {file.fileno()}: it holds no block"):
            FileBlk(file.fileno())
    with pytest.raises(CorelaneError, match=f"^open {tmp_path}/small: it holds no block of 4096 bytes"):
        FileBlk(tmp_path / "small")
    with pytest.raises(CorelaneError, match="depth must be"):
        FileBlk(path, depth=5000)
    with pytest.raises(CorelaneError, match="power of two"):
        FileBlk(path, block_bytes=1000)


def test_a_file_that_shrinks_is_an_error_where_it_ends(path, engine):
    with FileBlk(path, io=FileIo(engine=engine)) as blk:
        os.truncate(path, 8 * UNIT)
        assert blk.read(7 * UNIT, UNIT) == bytes(UNIT)
        with pytest.raises(BlkError) as caught:
            blk.read(6 * UNIT, 4 * UNIT)  # in two pieces: what is there, and the end
        assert caught.value.errno == errno.EIO
        assert blk.stats().continued == 1
        with pytest.raises(BlkError):
            blk.read(20 * UNIT, UNIT)


def test_a_read_only_descriptor_fails_writes_alone(path, engine):
    with FileBlk(os.open(path, os.O_RDONLY), io=FileIo(engine=engine)) as blk:
        assert blk.read(0, UNIT) == bytes(UNIT)
        for durable in (False, True):
            with pytest.raises(BlkError) as caught:
                blk.write(0, b"d" * UNIT, durable=durable)
            assert caught.value.errno == errno.EBADF


def test_how_it_was_opened_is_said(path):
    with FileBlk(path, io=FileIo(engine="threads", direct=False, no_dsync=True)) as blk:
        info = blk.info()
        assert (info.engine, info.direct, info.dsync, info.sqpoll, info.raw) == ("threads", False, False, False, False)
        assert info.why == ""  # asked for, not refused
    with FileBlk(path, io=FileIo(direct=False)) as blk:
        assert blk.info().engine == "threads"
        assert "through the page cache take turns" in blk.info().why
    with pytest.raises(CorelaneError, match="through the page cache take turns, by worker threads"):
        FileBlk(path, io=FileIo(engine="uring", direct=False))


def test_registered_memory_is_used_within_its_bounds_and_the_table_fills(path):
    with FileBlk(path) as blk:
        if blk.info().engine != "uring":
            pytest.skip(blk.info().why)
        request = Request(WRITE, 0, b"e" * 4 * UNIT, durable=True)
        assert lib.cl_blk_register_memory(blk.ptr, 0, request.c.buf, 3 * UNIT) == 0
        assert blk.submit([request]) == 1  # beyond the region's end it is memory as any other
        assert blk.finish(1)[0].result == 0
        assert blk.stats().fixed == 0
        others = [Request(READ, 8 * UNIT, UNIT) for _ in range(15)]
        for other in others:
            assert lib.cl_blk_register_memory(blk.ptr, 0, other.c.buf, UNIT) == 0
        assert lib.cl_blk_register_memory(blk.ptr, 0, request.c.buf, 4 * UNIT) == -errno.ENOSPC
        lib.cl_blk_unregister_memory(blk.ptr, 0, others[3].c.buf)  # its place is free again
        assert lib.cl_blk_register_memory(blk.ptr, 0, request.c.buf, 4 * UNIT) == 0
        request.c.op, request.c.flags = READ, 0
        assert blk.submit([request, *others]) == 16
        assert all(done.result == 0 for done in blk.finish(16))
        assert request.data == b"e" * 4 * UNIT
        assert blk.stats().fixed == 15


# The kernel makes no thread for us: it counts as one of a user who may have none.
NO_POLLING_THREAD = """
import os, resource, sys
from corelane.drivers.blk.file import FileBlk
fd = os.open(sys.argv[1], os.O_RDWR)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
os.setresuid(65534, 65534, 65534)
with FileBlk(fd, sqpoll=True) as blk:
    blk.write(0, b"f" * 4096, durable=True)
    assert blk.read(0, 4096) == b"f" * 4096
    print(blk.info().engine, blk.info().sqpoll, blk.info().why)
"""


def test_where_the_polling_thread_is_refused_the_ring_does_without_and_it_is_said(path):
    if os.geteuid():
        pytest.skip("becoming another user, who may have no process, takes root")
    with FileBlk(path) as blk:
        if blk.info().engine != "uring":
            pytest.skip(blk.info().why)
    done = subprocess.run(
        [sys.executable, "-c", NO_POLLING_THREAD, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("uring False the kernel's polling thread is refused (")


# io_uring_setup answers EPERM, as in a container whose filter does not know it.
REFUSED = """
import ctypes, platform, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
program = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *i) for i in (
    (0x20, 0, 0, 0),                # load the system call's number: io_uring_setup is 425 everywhere
    (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000))))
class Fprog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
fprog = Fprog(4, ctypes.cast(program, ctypes.c_void_p))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(fprog), 0, 0) == 0
from corelane.drivers.blk.file import FileBlk, FileIo
with FileBlk(sys.argv[1]) as blk:
    blk.write(0, b"f" * 4096, durable=True)
    assert blk.read(0, 4096) == b"f" * 4096
    print(blk.info().engine, blk.info().why)
try:
    FileBlk(sys.argv[1], io=FileIo(engine="uring"))
except Exception as error:
    print(error)
"""


def test_where_io_uring_is_refused_threads_do_the_same_and_it_is_said(path):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(REFUSED), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("threads io_uring is refused (Operation not permitted): see kernel.io_uring_disabled")
    assert "io_uring is refused" in second


def test_a_raw_device_in_use_is_refused(path, engine):
    if why := blk_loop.missing():
        pytest.skip(why)
    with open(path, "rb+") as file:
        fd, loop = blk_loop.attach(file.fileno(), 0, MIB)
    try:
        claim = os.open(loop, os.O_RDONLY | os.O_EXCL)
        with pytest.raises(CorelaneError, match="in use: it, or a partition of it, is mounted or claimed"):
            FileBlk(loop)
        os.close(claim)
        with FileBlk(loop, io=FileIo(engine=engine)) as blk:
            blk.write(0, b"g" * UNIT, durable=True)
    finally:
        os.close(fd)
    assert path.read_bytes()[:UNIT] == b"g" * UNIT


NO_DIRECT_IO = "a loop device has no direct I/O"


@pytest.fixture
def large_sectors(path: Path) -> Iterator[str]:
    """A loop device of 4096-byte sectors, in a disk's place."""
    if why := blk_loop.missing():
        pytest.skip(why)
    with open(path, "rb+") as file:
        fd, loop = blk_loop.attach(file.fileno(), 0, MIB, UNIT)
    yield loop
    os.close(fd)


@pytest.mark.parametrize("sector", [512, UNIT])
def test_a_loop_device_without_direct_io_is_used_through_the_page_cache(large_sectors: str, sector: int) -> None:
    """One with smaller sectors than the disk beneath. Writes side by side through it would not each have its error."""
    with FileBlk(large_sectors, io=FileIo(direct=True)) as disk:
        assert disk.atomic_bytes == UNIT
    with open(large_sectors, "rb+") as file:
        fd, loop = blk_loop.attach(file.fileno(), 0, MIB, sector)
    try:
        with FileBlk(loop) as blk:
            assert blk.info().direct is (sector == UNIT)
            assert blk.atomic_bytes == sector
            assert (NO_DIRECT_IO in blk.info().why) is (sector == 512)
            assert blk.info().engine == "threads" or sector == UNIT
            blk.write(0, b"g" * UNIT, durable=True)
        if sector == 512:
            with pytest.raises(CorelaneError, match=NO_DIRECT_IO):
                FileBlk(loop, io=FileIo(direct=True))
    finally:
        os.close(fd)
    with FileBlk(large_sectors) as disk:
        assert disk.read(0, UNIT) == b"g" * UNIT


def test_what_lies_on_a_loop_device_without_direct_io_goes_through_its_page_cache(large_sectors: str) -> None:
    with contextlib.ExitStack() as stack:
        below = stack.enter_context(open(large_sectors, "rb+"))
        fd, _ = blk_loop.attach(below.fileno(), 0, MIB, 512)
        stack.callback(os.close, fd)
        for _ in range(2):
            fd, loop = blk_loop.attach(fd, 0, MIB, 512)
            stack.callback(os.close, fd)
            assert sysfs(loop, "loop/dio") == "1"  # it has it itself
            with FileBlk(loop) as blk:
                assert not blk.info().direct
                assert blk.info().engine == "threads"
                assert NO_DIRECT_IO in blk.info().why


def sysfs(disk: str, what: str) -> str:
    return Path("/sys/block", os.path.basename(disk), what).read_text().strip()


@pytest.mark.root
@pytest.mark.parametrize("sector", [512, UNIT])
def test_a_file_whose_file_system_lies_on_a_loop_device(large_sectors: str, sector: int, tmp_path: Path) -> None:
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        pytest.skip("mounting needs root and mkfs.ext4: apt-get install e2fsprogs")
    at = tmp_path / "at"
    at.mkdir()
    with open(large_sectors, "rb+") as file:
        fd, loop = blk_loop.attach(file.fileno(), 0, MIB, sector)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", loop], check=True, timeout=60)
        subprocess.run(["mount", loop, str(at)], check=True, timeout=60)
        try:
            create(at / "f", 16 * UNIT)
            with FileBlk(at / "f") as blk:
                assert blk.info().direct is (sector == UNIT)
                assert (NO_DIRECT_IO in blk.info().why) is (sector == 512)
                blk.write(0, b"g" * UNIT, durable=True)
        finally:
            subprocess.run(["umount", "-l", str(at)], check=True, timeout=60)
    finally:
        os.close(fd)


# Without the file systems that tell of devices, as in a bare container: the device itself still does.
WITHOUT_SYSFS = """
import subprocess, sys
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["umount", "--lazy", "/sys"], check=True)
from corelane.drivers.blk.file import FileBlk
with FileBlk(sys.argv[1]) as blk:
    print(blk.info().direct, blk.atomic_bytes, blk.info().why)
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="takes /sys away in a namespace: run as root")
def test_a_loop_device_where_there_is_no_sysfs(large_sectors: str, tmp_path: Path) -> None:
    if os.major(tmp_path.stat().st_dev) == 0:
        pytest.skip("of a file system without a disk nothing is known then")
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", WITHOUT_SYSFS, large_sectors],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == f"True {UNIT} \n"


def test_a_mounted_device_is_refused(path, tmp_path):
    if why := blk_loop.missing():
        pytest.skip(why)
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        pytest.skip("mounting needs root and mkfs.ext4: apt-get install e2fsprogs")
    (tmp_path / "at").mkdir()
    subprocess.run(["mkfs.ext4", "-q", str(path)], check=True, timeout=60)
    with open(path, "rb+") as file:
        fd, loop = blk_loop.attach(file.fileno(), 0, MIB)
    try:
        mounted = subprocess.run(
            ["mount", loop, str(tmp_path / "at")], capture_output=True, text=True, timeout=60, check=False
        )
        if mounted.returncode:
            pytest.skip(f"nothing may be mounted here: {mounted.stderr}")
        try:
            with pytest.raises(CorelaneError, match="mounted or claimed"):
                FileBlk(loop)
        finally:
            subprocess.run(["umount", "-l", str(tmp_path / "at")], check=True, timeout=60)
    finally:
        os.close(fd)


def test_a_loop_device_ends_where_its_part_ends(path):
    if why := blk_loop.missing():
        pytest.skip(why)
    with open(path, "rb+") as file:
        fd, _ = blk_loop.attach(file.fileno(), 4 * UNIT, 2 * UNIT)
    with FileBlk(fd) as blk:
        assert blk.size_bytes == 2 * UNIT
        blk.write(UNIT, b"h" * UNIT, durable=True)
        with pytest.raises(BlkError):
            blk.write(2 * UNIT, b"h" * UNIT)
    data = path.read_bytes()
    assert data == bytes(5 * UNIT) + b"h" * UNIT + bytes(MIB - 6 * UNIT)


# No user's process, without a capability, which has been given the descriptor FD of a loop device.
ENLARGES = """
import os, sys
from cltest.loops import move_loop
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
assert int(next(line for line in open("/proc/self/status") if line.startswith("CapEff")).split()[1], 16) == 0
fd = int(sys.argv[1])
move_loop(fd, 0, 0)
os.pwrite(fd, b"t" * 4096, 0)
os.fsync(fd)
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="changes its user: run as root")
def test_who_may_write_to_a_loop_device_may_enlarge_it(path):
    """A fact about Linux, which is why iokernel/areas/device.py has to trust those whom it gives one. Should this fail
    on a newer kernel, that one needs no trust any more."""
    if why := blk_loop.missing():
        pytest.skip(why)
    with open(path, "rb+") as file:
        fd, _ = blk_loop.attach(file.fileno(), 4 * UNIT, 2 * UNIT)
    try:
        done = subprocess.run(
            [sys.executable, "-c", ENLARGES, str(fd)],
            pass_fds=[fd],
            env={**os.environ, "PYTHONPATH": "tests/support"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(fd)
    assert done.returncode == 0, done.stderr
    assert path.read_bytes()[:UNIT] == b"t" * UNIT


def test_a_word_and_a_request_each_end_the_wait(path, c_program, seed):
    out = c_program("tests/drivers/blk/c/word.c")(500, seed, path)
    if out.startswith("skip: "):
        pytest.skip(out.removeprefix("skip: ").strip())
    assert out == "ok\n"


def test_a_ring_outlives_what_the_kernel_refuses_or_does_not_give_back(c_program):
    assert c_program("tests/drivers/blk/c/uring_fake.c", sources=["drivers/blk/blk.c"])() == "ok\n"


def test_worker_threads_answer_what_the_kernel_answers_and_leave_what_it_keeps(c_program):
    assert c_program("tests/drivers/blk/c/threads_fake.c", sources=["drivers/blk/blk.c"])() == "ok\n"
