"""Storage areas that somebody has, or that are being made, grown or deleted: who waits, and who does not."""

from __future__ import annotations

import errno
import itertools
import os
import select
import threading

import pytest
from cltest import wait_until
from cltest.areas import CREATE, DELETE, GROW, LIST, MIB, OPEN, ROOT
from cltest.control import answer, connect, kind_of, refusal, stats

from corelane.drivers.blk import file as blk_file
from corelane.drivers.blk.area import AreaBlk
from corelane.iokernel._native import ffi, lib
from corelane.iokernel.areas.areas import Area, Areas, DirectoryStore
from corelane.iokernel.areas.operations import Busy
from corelane.runtime import control
from corelane.runtime.errors import Refused


def test_an_area_whose_user_was_killed_a_moment_ago_is_had(serving):
    """What is registered with io_uring goes with its locks a while after the process."""
    control.area(serving, CREATE, "log", MIB)
    for ask in (OPEN, DELETE):
        _, fd, claim = control.area(serving, OPEN, "log")
        os.close(claim)
        ends = threading.Timer(0.1, os.close, [fd])
        ends.start()
        _, again, claim = control.area(serving, ask, "log")
        ends.join()
        if ask == OPEN:
            os.close(again)
            os.close(claim)
    assert control.area(serving, LIST)[0]["areas"] == []


def test_what_somebody_has_is_busy_at_once(store):
    """Whoever waits for it is the control thread's jobs, and not the one thread that opens areas."""
    areas = Areas(store)
    store.create("log", 0, MIB)
    fd, _ = store.open(store.areas()[0])
    for op in (OPEN, DELETE):
        with pytest.raises(Busy) as caught:
            areas.handle(op, "log", 0, "", ROOT)
        assert caught.value.errno == errno.EBUSY
    os.close(fd)
    areas.handle(OPEN, "log", 0, "", ROOT)
    with pytest.raises(Refused, match="another client has it open") as refused:
        areas.handle(OPEN, "log", 0, "", ROOT)
    assert not isinstance(refused.value, Busy), "it will have it for longer than a moment"


def message(op: int, name: str, size: int = 0) -> bytes:
    ask = ffi.new("struct cl_control_area *", {"op": op, "bytes": size, "name": name.encode()})
    header = ask.header
    header.magic, header.version = lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION
    header.type, header.bytes = lib.CL_CONTROL_AREA, ffi.sizeof("struct cl_control_area")
    return bytes(ffi.buffer(ask))


def test_many_who_ask_for_a_busy_area_hold_nobody_up(serving):
    """Who has it keeps the descriptor, and has ended the connection."""
    for name in ("busy", "free"):
        control.area(serving, CREATE, name, MIB)
    _, fd, claim = control.area(serving, OPEN, "busy")
    os.close(claim)
    wait_until(lambda: stats(serving)["control"]["areas_opened"] == 1)
    asking = [connect(serving) for _ in range(40)]
    for sock in asking:
        sock.sendall(message(OPEN, "busy"))
    with AreaBlk(serving, "free"):
        assert not select.select(asking, [], [], 0)[0], "all of them wait, and it did not wait for one of them"
    for sock in asking:
        assert "another process has it open" in refusal(sock)
        sock.close()
    os.close(fd)


@pytest.fixture
def writing(store, monkeypatch) -> tuple[threading.Event, threading.Event]:
    """`begun, go`: what is written for a new area stops at its first byte, until `go` is set."""
    begun, go = threading.Event(), threading.Event()

    def stopping(function):
        def wait(*args, **options):
            if isinstance(store, DirectoryStore) or args[2:] == (1,):  # the queue of zeros
                begun.set()
                assert go.wait(60)
            return function(*args, **options)

        return wait

    if isinstance(store, DirectoryStore):
        monkeypatch.setattr(blk_file, "create", stopping(blk_file.create))
        monkeypatch.setattr(blk_file, "grow", stopping(blk_file.grow))
    else:
        monkeypatch.setattr(store._blk, "write", stopping(store._blk.write))
    return begun, go


def test_nothing_waits_behind_the_making_of_an_area(serving, store, writing):
    begun, go = writing
    go.set()
    control.area(serving, CREATE, "there", MIB)
    control.area(serving, CREATE, "old", MIB)
    begun.clear()
    go.clear()
    with connect(serving) as maker:
        maker.sendall(message(CREATE, "big", 4 * MIB))
        assert begun.wait(60)
        assert [a["name"] for a in control.area(serving, LIST)[0]["areas"]] == ["old", "there"]
        AreaBlk(serving, "there").close()
        control.area(serving, DELETE, "old")
        go.set()
        assert kind_of(answer(maker)) == lib.CL_CONTROL_AREA_OK
    assert sorted(a.name for a in store.areas()) == ["big", "there"]


def test_what_is_being_made_or_grown_is_nobody_elses_meanwhile(store, writing):
    begun, go = writing
    areas = Areas(store, quota=10 * MIB)
    go.set()
    areas.handle(CREATE, "log", MIB, "", ROOT)
    for op, name, size in ((GROW, "log", 8 * MIB), (CREATE, "new", 2 * MIB)):
        begun.clear()
        go.clear()
        maker = threading.Thread(target=areas.handle, args=(op, name, size, "", ROOT))
        maker.start()
        assert begun.wait(60)
        if op == GROW:
            for other in (GROW, OPEN, DELETE):
                with pytest.raises(Refused, match="it is being made, grown or deleted") as caught:
                    areas.handle(other, name, 9 * MIB, "", ROOT)
                assert caught.value.errno == errno.EBUSY
        else:
            with pytest.raises(Refused, match="it is being made, grown or deleted"):
                areas.handle(CREATE, name, MIB, "12002", ROOT)
        with pytest.raises(Refused) as caught:
            areas.handle(CREATE, "more", 6 * MIB, "", ROOT)
        assert caught.value.errno == errno.EDQUOT, "its bytes count before they are written"
        with pytest.raises(Refused) as caught:
            areas.handle(CREATE, "more", 8 * MIB, "12002", ROOT)
        assert caught.value.errno == errno.ENOSPC
        go.set()
        maker.join()
    assert {a.name: a.size for a in store.areas()} == {"log": 8 * MIB, "new": 2 * MIB}


def test_what_is_being_deleted_is_opened_by_nobody(store, monkeypatch):
    """Between the look whether somebody has it and its end: on a device another area may lie there then."""
    areas = Areas(store)
    areas.handle(CREATE, "log", MIB, "", ROOT)
    delete = store.delete

    def look(area: Area) -> None:
        for op in (OPEN, GROW, DELETE):
            with pytest.raises(Refused, match="it is being made, grown or deleted"):
                areas.handle(op, "log", 2 * MIB, "", ROOT)
        delete(area)

    monkeypatch.setattr(store, "delete", look)
    areas.handle(DELETE, "log", 0, "", ROOT)
    with pytest.raises(Refused, match="there is none"):
        areas.handle(OPEN, "log", 0, "", ROOT)


def test_several_users_make_areas_at_a_time(store, writing):
    begun, go = writing
    areas = Areas(store)
    makers = []
    for i, owner in enumerate(("12001", "12002", "12003")):
        begun.clear()
        maker = threading.Thread(target=areas.handle, args=(CREATE, f"a{i}", 2 * MIB, owner, ROOT))
        maker.start()
        makers.append(maker)
        if i == 0 or isinstance(store, DirectoryStore):  # a device has one queue for zeros
            assert begun.wait(60)
    go.set()
    for maker in makers:
        maker.join()
    found = sorted(store.areas(), key=lambda a: a.offset)
    assert sorted(a.name for a in found) == ["a0", "a1", "a2"]
    for before, after in itertools.pairwise(found):
        assert isinstance(store, DirectoryStore) or before.offset + before.size <= after.offset
