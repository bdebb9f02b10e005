"""What writes through the page cache of a loop device gets no storage areas."""

from __future__ import annotations

import errno

import pytest
from cltest.areas import MIB
from cltest.loops import file_system, loop_device, mounted

from corelane.drivers.blk import file as blk_file
from corelane.iokernel.areas.areas import DirectoryStore
from corelane.iokernel.areas.device import open_device
from corelane.runtime.errors import CorelaneError

CACHES = r"/.*: a loop device has no direct I/O .* \(make the loop device, .*, or give the iokernel a folder or device"


def test_a_device_that_goes_through_a_page_cache_is_refused(tmp_path):
    """All areas on it would share the one opening that is told of a write that failed, once."""
    blk_file.create(tmp_path / "disk", 16 * MIB)
    with loop_device(tmp_path / "disk", cached=True) as loop:
        with pytest.raises(CorelaneError, match=f"storage.device {CACHES}") as caught:
            open_device(loop)
        assert caught.value.errno == errno.EOPNOTSUPP
        with blk_file.FileBlk(loop):
            pass  # it was let go of


@pytest.mark.root
def test_a_file_or_folder_that_goes_through_a_page_cache_is_refused(tmp_path):
    with file_system(tmp_path / "at", tmp_path / "image", cached=True, size=16 * MIB) as at:
        blk_file.create(at / "disk", 8 * MIB)
        with pytest.raises(CorelaneError, match=f"storage.device {CACHES}"):
            open_device(str(at / "disk"))
        with pytest.raises(CorelaneError, match=f"storage.directory {CACHES}") as caught:
            DirectoryStore(str(at / "areas"))
        assert caught.value.errno == errno.EOPNOTSUPP
        with blk_file.FileBlk(at / "disk"):
            pass


@pytest.mark.root
def test_what_may_go_through_a_page_cache_is_said(tmp_path):
    """Of a raw device, whose applications would then all write through it, more is asked."""
    with file_system(tmp_path / "at", tmp_path / "image", cached=True, size=16 * MIB) as at:
        for name in ("lower", "upper", "work"):
            (at / name).mkdir()
        options = f"lowerdir={at}/lower,upperdir={at}/upper,workdir={at}/work"
        with mounted(tmp_path / "over", "none", "-t", "overlay", "-o", options) as over:
            blk_file.create(over / "disk", 8 * MIB)
            stores = [
                (f"storage.device {over}/disk", open_device(str(over / "disk"))),
                (f"storage.directory {over}/areas", DirectoryStore(str(over / "areas"))),
            ]
            for what, store in stores:
                (note,) = store.notes
                assert note.startswith(f"{what}: it is not known whether it lies on a loop device without direct I/O")
                store.create("log", 0, MIB)
                store.close()
            refused = pytest.raises(CorelaneError, match=r"it is not known .* \(give the iokernel another device, or")
            with loop_device(over / "disk", cached=False) as loop, refused:
                open_device(loop)
