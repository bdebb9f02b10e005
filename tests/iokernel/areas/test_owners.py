"""Whose storage areas are, and how much each user may have."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest
from cltest.areas import ANNA, BERT, CREATE, DELETE, GROW, LIST, MIB, OPEN, ROOT, UNIT, device

from corelane.drivers.blk.blk import memory_blk
from corelane.iokernel import Access, Iokernel
from corelane.iokernel.areas import table as areas_table
from corelane.iokernel.areas.areas import Area, Areas, DirectoryStore
from corelane.iokernel.areas.device import DeviceStore
from corelane.runtime.errors import CorelaneError, Refused


def test_an_area_is_its_owners(shared_store):
    areas = Areas(shared_store)
    areas.handle(CREATE, "annas", MIB, "", ANNA)
    areas.handle(CREATE, "berts", MIB, "12002", ROOT)
    assert [a["name"] for a in areas.handle(LIST, "", 0, "", ANNA)[0]["areas"]] == ["annas"]
    assert [a["uid"] for a in areas.handle(LIST, "", 0, "", ROOT)[0]["areas"]] == [12001, 12002]
    for op in (GROW, DELETE, OPEN):
        with pytest.raises(CorelaneError, match="it is not user 12001's") as caught:
            areas.handle(op, "berts", 2 * MIB, "", ANNA)
        assert caught.value.errno == errno.EACCES
    with pytest.raises(CorelaneError, match="may not make one for another"):
        areas.handle(CREATE, "more", MIB, "12002", ANNA)
    with pytest.raises(CorelaneError, match="there is no user"):
        areas.handle(CREATE, "more", MIB, "nobody-of-that-name", ROOT)
    _, fd = areas.handle(OPEN, "berts", 0, "", BERT)
    os.close(fd)


def test_quota_and_capacity_are_kept(shared_store):
    areas = Areas(shared_store, quota=6 * MIB)
    areas.handle(CREATE, "a", 5 * MIB, "", ANNA)
    with pytest.raises(CorelaneError) as caught:
        areas.handle(CREATE, "b", 2 * MIB, "", ANNA)
    assert caught.value.errno == errno.EDQUOT
    areas.handle(CREATE, "b", 6 * MIB, "", BERT)
    with pytest.raises(CorelaneError) as caught:
        areas.handle(CREATE, "c", 5 * MIB, "", ROOT)
    assert caught.value.errno == errno.ENOSPC
    assert areas.handle(LIST, "", 0, "", ROOT)[0]["largest_bytes"] == 4 * MIB
    areas.handle(CREATE, "c", 4 * MIB, "", ROOT)
    areas.handle(DELETE, "b", 0, "", BERT)
    areas.handle(CREATE, "d", 6 * MIB, "", BERT)


def test_by_default_no_user_takes_all_that_there_is(shared_store):
    areas = Areas(shared_store, quota_areas=3)
    with pytest.raises(CorelaneError, match="user 12001 has 0 of 7864320 bytes in use besides") as caught:
        areas.handle(CREATE, "a", 8 * MIB, "", ANNA)
    assert caught.value.errno == errno.EDQUOT
    assert areas.handle(LIST, "", 0, "", ANNA)[0]["quota_bytes"] == 7864320
    for i in range(3):
        areas.handle(CREATE, f"a{i}", UNIT, "", ANNA)
    with pytest.raises(CorelaneError, match=r"user 12001 has 3 areas already \(raise storage\.quota_areas") as caught:
        areas.handle(CREATE, "more", UNIT, "", ANNA)
    assert caught.value.errno == errno.EDQUOT
    assert areas.handle(LIST, "", 0, "", ROOT)[0]["quota_bytes"] == 0
    areas.handle(CREATE, "roots", 14 * MIB, "", ROOT)


def test_an_area_grows_to_the_quota_and_no_further(shared_store):
    areas = Areas(shared_store, quota=6 * MIB)
    areas.handle(CREATE, "other", MIB, "", ANNA)
    areas.handle(CREATE, "log", MIB, "", ANNA)
    with pytest.raises(CorelaneError, match="1048576 of 6291456 bytes in use besides") as caught:
        areas.handle(GROW, "log", 5 * MIB + UNIT, "", ANNA)
    assert caught.value.errno == errno.EDQUOT
    assert areas.handle(GROW, "log", 5 * MIB, "", ANNA)[0]["area"]["bytes"] == 5 * MIB


@pytest.mark.parametrize(
    ("owner", "match"),
    [
        ("²", "there is no user '²'"),
        ("-1", "there is no user '-1'"),
        ("a\0b", "there is no user"),
        ("1" * 5000, "there is no user"),
        ("4294967295", "user ids are numbers from 0 to 4294967294"),
        ("99999999999999", "user ids are numbers from 0 to 4294967294"),
    ],
)
def test_an_owner_who_cannot_be_one_is_refused_before_anything_is_written(tmp_path, owner, match):
    folder, disk = DirectoryStore(str(tmp_path / "d")), memory_blk(4 * MIB)
    (tmp_path / "disk").touch()  # what claims would be on
    table = DeviceStore(disk, str(tmp_path / "disk"))
    writes = disk.stats().writes
    for store in (folder, table):
        with pytest.raises(Refused, match=match) as caught:
            Areas(store).handle(CREATE, "log", MIB, owner, ROOT)
        assert caught.value.errno == errno.EINVAL
        assert store.areas() == []
    assert os.listdir(tmp_path / "d") == []
    assert disk.stats().writes == writes
    Areas(table).handle(CREATE, "log", MIB, "4294967294", ROOT)
    assert [a.owner for a in DeviceStore(disk, "/nonexistent").areas()] == [4294967294]
    table.close()


# A client of another user, which says what it was answered: asks for AREA on SOCKET.
CLIENT = """
import os, sys
from corelane.iokernel._native import lib
from corelane.runtime import control
from corelane.runtime.errors import CorelaneError
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for op in (lib.CL_CONTROL_AREA_CREATE, lib.CL_CONTROL_AREA_OPEN):
    try:
        answer, fd, _ = control.area(sys.argv[1], op, sys.argv[2], 1 << 20)
        print("done", fd >= 0)
    except CorelaneError as error:
        print(error.errno, error)
"""


def as_another_user(areas: Areas, path: str, name: str) -> list[str]:
    os.chmod(os.path.dirname(path), 0o755)
    with Iokernel(path, areas=areas, poll="block", access=Access(mode=0o666, uids=(65534,))):
        args = [sys.executable, "-c", CLIENT, path, name]
        done = subprocess.run(args, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="changes its user: run as root")
def test_a_device_gives_no_area_to_another_user(tmp_path, socket_path):
    """Who may write to a loop device may enlarge it: test_who_may_write_to_a_loop_device_may_enlarge_it."""
    store = device(tmp_path)
    name = "a" * 47
    store.create(name, 65534, MIB)  # when clients were trusted
    said = as_another_user(Areas(store), socket_path, name)
    for line in said:
        assert line.startswith(f"{errno.EOPNOTSUPP} storage area {name}: refused by the iokernel: on a device")
        assert "on a device user 65534 would get at all areas (set storage.directory: the kernel keeps" in line
        assert "; or storage.trusted = true: all clients are trusted)" in line
    assert len(said) == 2
    assert store.areas() == [Area(name, 65534, MIB, areas_table.DATA_OFFSET)]
    store.close()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="changes its user: run as root")
def test_another_user_has_areas_of_a_folder_or_if_trusted(shared_store, socket_path):
    assert as_another_user(Areas(shared_store), socket_path, "log") == ["done False", "done True"]
    assert [a.owner for a in shared_store.areas()] == [65534]
