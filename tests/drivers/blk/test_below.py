"""What lies below a file or disk: whether direct I/O gets through to the disk, or into a loop device's page cache."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cltest.loops import file_system, loop_device, mounted

from corelane.drivers.blk import file as blk_file
from corelane.drivers.blk import loop as blk_loop
from corelane.drivers.blk.file import FileBlk, FileIo, create
from corelane.runtime.errors import CorelaneError

MIB, UNIT = 1 << 20, 4096
DIRECT, UNKNOWN, CACHED = "0\n", "1\n", "2\n"


class Sysfs:
    """A /sys of disks. No loop device that it names is there, so none can be asked what it is made of."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "dev/block").mkdir(parents=True)
        (root / "block").mkdir()

    def disk(self, number: str, name: str, *, of: tuple[str, ...] = (), dio: int | None = None, ro: int = 0) -> None:
        """One that is made of others, or, if dio is given, a loop device."""
        at = self.root / "devices" / name
        (at / "slaves").mkdir(parents=True)
        for part in of:
            (at / "slaves" / part).symlink_to(self._at(part))
        if dio is not None:
            (at / "loop").mkdir()
            (at / "loop/dio").write_text(f"{dio}\n")
        (at / "ro").write_text(f"{ro}\n")
        (self.root / "block" / name).symlink_to(at)
        self._number(at, number)

    def partition(self, number: str, disk: str, name: str) -> None:
        at = self.root / "devices" / disk / name
        at.mkdir()
        self._number(at, number)

    def _number(self, at: Path, number: str) -> None:
        (at / "dev").write_text(f"{number}\n")
        (self.root / "dev/block" / number).symlink_to(at)

    def _at(self, name: str) -> Path:
        return next(path for path in (self.root / "devices").rglob(name) if (path / "dev").exists())


def made(root: Path) -> Sysfs:
    """vda and its partition, of the device mapper one of both and one of each, loop devices with direct I/O."""
    sysfs = Sysfs(root)
    sysfs.disk("254:0", "vda")
    sysfs.partition("254:1", "vda", "vda1")
    sysfs.disk("7:900", "loop900", dio=1)
    sysfs.partition("259:0", "loop900", "loop900p1")
    sysfs.disk("7:901", "loop901", dio=0, ro=1)
    sysfs.disk("253:0", "dm-0", of=("vda1",))
    sysfs.disk("253:1", "dm-1", of=("dm-0", "loop900p1"))
    return sysfs


@pytest.fixture
def asked(c_program: Callable[..., Callable[..., str]], tmp_path: Path) -> Callable[[str], str]:
    run = c_program("tests/drivers/blk/c/below.c", sources=[], one_thread=True)
    return lambda number: run(tmp_path / "sys", *number.split(":"))


NUMBERS = ["254:0", "254:1", "253:0", "253:1", "7:900", "259:0", "0:50", "7:950"]


def test_where_no_loop_device_caches_all_is_direct(asked: Callable[[str], str], tmp_path: Path) -> None:
    """But for one that cannot be written to: nothing was, and something that is not has no writer."""
    made(tmp_path / "sys")
    assert [asked(number) for number in NUMBERS] == [DIRECT] * len(NUMBERS)
    assert asked("7:901") == CACHED


def test_what_may_lie_on_a_loop_device_that_caches(asked: Callable[[str], str], tmp_path: Path) -> None:
    """A file system without a disk, a loop device that may not be asked or of which nothing is known, and on them."""
    made(tmp_path / "sys").disk("7:902", "loop902", dio=0)
    answers = [DIRECT, DIRECT, DIRECT, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN]
    assert [asked(number) for number in NUMBERS] == answers


def test_what_lies_on_a_loop_device_that_caches(asked: Callable[[str], str], tmp_path: Path) -> None:
    sysfs = made(tmp_path / "sys")
    sysfs.disk("7:902", "loop902", dio=0)
    sysfs.partition("259:1", "loop902", "loop902p1")
    sysfs.disk("9:0", "md0", of=("vda", "loop902p1"))
    sysfs.partition("259:2", "md0", "md0p1")
    sysfs.disk("253:2", "dm-2", of=("loop900p1", "md0p1", "vda1"))
    for number in ("7:902", "259:1", "9:0", "259:2", "253:2"):
        assert asked(number) == CACHED


def test_of_what_is_made_of_too_many_things_nothing_is_known(asked: Callable[[str], str], tmp_path: Path) -> None:
    sysfs = made(tmp_path / "sys")
    below = "vda"
    for n in range(10):
        sysfs.disk(f"253:{n + 10}", f"deep-{n}", of=(below,))
        below = f"deep-{n}"
    assert asked("253:19") == DIRECT
    sysfs.disk("7:902", "loop902", dio=0)
    assert [asked("253:16"), asked("253:17")] == [DIRECT, UNKNOWN]


def test_where_there_is_no_sysfs_a_disk_is_one(asked: Callable[[str], str]) -> None:
    assert [asked(number) for number in NUMBERS] == [DIRECT] * 4 + [UNKNOWN, DIRECT, UNKNOWN, UNKNOWN]


# The rest on the kernel's own.


def check_cached(path: Path, verdict: str = "cached") -> None:
    """A file there goes through the page cache, by threads."""
    create(path, 16 * UNIT)
    with FileBlk(path) as blk:
        info = blk.info()
        blk.write(0, b"g" * UNIT, durable=True)
    assert (info.direct, info.engine, info.below) == (False, "threads", verdict)
    assert blk_file.below(path) == blk_file.below(path.parent) == (verdict, info.why.split("; ")[0])
    with pytest.raises(CorelaneError, match="loop device"):
        FileBlk(path, io=FileIo(direct=True))


def test_a_file_that_is_not_there_lies_nowhere(tmp_path: Path) -> None:
    with pytest.raises(CorelaneError, match=r"cannot look at .*/none: No such file"):
        blk_file.below(tmp_path / "none")


@pytest.mark.root
def test_a_file_of_a_file_system_on_a_loop_device_that_caches(tmp_path: Path) -> None:
    with file_system(tmp_path / "at", tmp_path / "image", cached=True) as at:
        check_cached(at / "f")
        with file_system(tmp_path / "upper", at / "image", cached=False, size=MIB) as upper:
            check_cached(upper / "f")
            with mounted(at, "none", "-t", "tmpfs"):
                (at / "image").touch()  # the name of what is below is another file's by now
                check_cached(upper / "g")


# By no user's process, who may not ask a loop device what it is made of.
ASKS = """
import os
from corelane.drivers.blk.file import FileBlk
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
with FileBlk("f") as blk:
    print(blk.info().below, blk.info().why)
"""


@pytest.mark.root
def test_who_may_not_ask_a_loop_device_does_not_know(tmp_path: Path) -> None:
    create(tmp_path / "other", MIB)
    with (
        file_system(tmp_path / "at", tmp_path / "image", cached=False) as at,
        loop_device(tmp_path / "other", cached=True),
    ):
        create(at / "f", 16 * UNIT)
        (at / "f").chmod(0o666)
        command = [sys.executable, "-c", ASKS]
        done = subprocess.run(command, cwd=at, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("unknown it is not known whether it lies on a loop device without direct I/O")


@pytest.mark.root
def test_a_file_of_an_overlay_may_lie_on_a_loop_device_that_caches(tmp_path: Path) -> None:
    with file_system(tmp_path / "at", tmp_path / "image", cached=True) as at:
        for name in ("lower", "upper", "work"):
            (at / name).mkdir()
        options = f"lowerdir={at}/lower,upperdir={at}/upper,workdir={at}/work"
        with mounted(tmp_path / "over", "none", "-t", "overlay", "-o", options) as over:
            check_cached(over / "f", "unknown")


@pytest.mark.root
def test_what_is_in_memory_lies_on_no_loop_device(tmp_path: Path) -> None:
    create(tmp_path / "other", MIB)
    with loop_device(tmp_path / "other", cached=True), mounted(tmp_path / "at", "none", "-t", "tmpfs") as at:
        create(at / "f", 16 * UNIT)
        with FileBlk(at / "f") as blk:
            assert blk.info().below == "direct"
        assert blk_file.below(at) == ("direct", "")


@pytest.mark.root
def test_a_loop_device_of_ours_has_direct_io_before_anybody_can_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for with the device, not only later."""
    found, ioctl = [], fcntl.ioctl

    def watched(fd: Any, request: int, *args: Any) -> Any:
        if request == blk_loop._SET_DIRECT_IO:
            found.append(Path(f"/sys/block/{Path(os.readlink(f'/proc/self/fd/{fd}')).name}/loop/dio").read_text())
        return ioctl(fd, request, *args)

    create(tmp_path / "file", MIB)
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "ioctl", watched)
        with loop_device(tmp_path / "file", cached=False, sector=UNIT) as loop:
            if Path(f"/sys/block/{Path(loop).name}/loop/dio").read_text() == "0\n":
                pytest.skip("no loop device on this file system has direct I/O")
    assert found == ["1\n"]
