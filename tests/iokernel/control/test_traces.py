"""What is given out of an application's process on the control socket: its trace segment, or nothing."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from cltest import open_descriptors

from corelane.iokernel.control import traces
from corelane.runtime.errors import Refused
from corelane.runtime.peers import Peer
from corelane.runtime.trace import LINK

US = Peer(os.getpid(), os.getuid(), os.getgid(), frozenset())


def test_a_memory_file_with_the_name_and_something_else_in_it_is_none() -> None:
    fd = os.memfd_create("corelane-trace")
    try:
        assert os.readlink(f"/proc/self/fd/{fd}") == LINK
        os.write(fd, b"what nobody is to read" * 1000)
        found = traces.opened(US, "x")
        assert (found.fd, found.none) == (-1, True)
    finally:
        os.close(fd)


def test_many_of_them_take_few_descriptors_of_ours_and_leave_none() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.memfd_create("corelane-trace") for _ in range(100)]
    before = open_descriptors()
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 10, limits[1]))
    try:
        assert traces.opened(US, "x").none
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        left = open_descriptors()
        for fd in held:
            os.close(fd)
    assert left == before


def test_no_other_file_is_opened_whatever_its_link_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To open a pipe would wait for somebody to write to it."""
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    file.write_text("secret")
    for path in (pipe, file):
        monkeypatch.setattr(traces, "LINK", str(path))
        held = os.open(path, os.O_RDWR)
        try:
            assert traces.opened(US, "x").fd == -1
        finally:
            os.close(held)


def test_of_a_process_that_is_another_users_by_now_nothing_is_opened() -> None:
    other = Peer(os.getpid(), os.getuid() + 1, 0, frozenset())
    found = traces.opened(other, "x")
    assert (found.fd, found.why, found.none) == (-1, "its process lets nobody look into it", False)


def test_who_may_have_it() -> None:
    owner = Peer(1, 4000, 4000, frozenset())
    for uid in (4000, 0, os.geteuid()):
        traces.check_may(Peer(2, uid, 0, frozenset()), owner, "kv")
    with pytest.raises(Refused, match="user 4001 may not trace kv, which is of user 4000"):
        traces.check_may(Peer(2, 4001, 4000, frozenset({4000})), owner, "kv")
