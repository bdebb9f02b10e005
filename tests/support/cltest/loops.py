"""Loop devices, what lies on them, and what a process does to one that it may write to."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from corelane.drivers.blk import file as blk_file
from corelane.drivers.blk import loop as blk_loop

_SET_STATUS64, _GET_STATUS64, _SET_DIRECT_IO = 0x4C04, 0x4C05, 0x4C08
_INFO = "<QQQQQIIII64s64s32sQQ"  # struct loop_info64 of linux/loop.h
_OFFSET, _SIZE_LIMIT = 3, 4


def move_loop(fd: int, offset: int, size: int) -> None:
    """Have the loop device be bytes offset..offset+size of what it was made of; size 0: up to its end."""
    info = list(struct.unpack(_INFO, fcntl.ioctl(fd, _GET_STATUS64, bytes(struct.calcsize(_INFO)))))
    info[_OFFSET], info[_SIZE_LIMIT] = offset, size
    fcntl.ioctl(fd, _SET_STATUS64, struct.pack(_INFO, *info))


def through_page_cache(fd: int) -> None:
    """Have the loop device write through the page cache, as one that losetup made without --direct-io=on."""
    fcntl.ioctl(fd, _SET_DIRECT_IO, 0)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=60)


@contextlib.contextmanager
def loop_device(file: Path, *, cached: bool, sector: int = 512) -> Iterator[str]:
    """One over a file: its path. Skips the test where there is none."""
    if why := blk_loop.missing():
        pytest.skip(why)
    with open(file, "rb+") as opened:
        fd, loop = blk_loop.attach(opened.fileno(), 0, os.fstat(opened.fileno()).st_size, sector)
    try:
        if cached:
            through_page_cache(fd)
        yield loop
    finally:
        os.close(fd)


@contextlib.contextmanager
def mounted(at: Path, device: str, *options: str) -> Iterator[Path]:
    """`at`, made unless it is there, and mounted. Skips the test where that is refused."""
    at.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *options, device, str(at)], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        pytest.skip(f"nothing may be mounted here: {done.stderr}")
    try:
        yield at
    finally:
        _run("umount", "-l", str(at))  # a ring that was closed lets go of its file a while later


@contextlib.contextmanager
def file_system(at: Path, image: Path, *, cached: bool, size: int = 4 << 20) -> Iterator[Path]:
    """An ext4 in the file `image`, which is made, on a loop device, mounted at `at`, which is made, too."""
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        pytest.skip("mounting needs root and mkfs.ext4: apt-get install e2fsprogs")
    blk_file.create(image, size)
    with loop_device(image, cached=cached) as loop:
        _run("mkfs.ext4", "-q", "-O", "^has_journal", loop)
        with mounted(at, loop):
            yield at
