"""Traces of attached applications by the control socket: who gets them, and how they are switched while they run."""

from __future__ import annotations

import errno
import json
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from cltest import wait_until

from corelane.cli.main import main
from corelane.iokernel import Access, Iokernel
from corelane.libos import Runtime, Trace
from corelane.runtime import control
from corelane.runtime._native import ffi, lib
from corelane.runtime.errors import CorelaneError
from corelane.runtime.trace import Segment

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user: run as root")

ASK = """
import os, sys
from corelane.runtime import control
from corelane.runtime.errors import CorelaneError
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
for how in (0, 1):
    try:
        print(control.trace(sys.argv[1], "kept", 0, how))
    except CorelaneError as error:
        print(error.errno, error)
"""

Attach = Callable[..., Runtime]


@pytest.fixture
def attach(socket_path: str) -> Iterator[Attach]:
    """A runtime of an iokernel that runs; options of Runtime."""
    with ExitStack() as stack:
        os.chmod(os.path.dirname(socket_path), 0o755)
        stack.enter_context(Iokernel(socket_path, access=Access(uids=(NOBODY,), mode=0o666)))

        def make(name: str, **options: Any) -> Runtime:
            runtime = stack.enter_context(Runtime(socket_path, name=name, poll="block", **options))
            runtime.start()
            return runtime

        yield make


def test_its_user_gets_it_to_read_and_nothing_else(attach: Attach, socket_path: str) -> None:
    attach("kept", trace=Trace(records=256))
    attach("other")  # of the same process
    said, fd = control.trace(socket_path, "kept")
    assert said == {"app": "kept", "pid": os.getpid(), "segment": True, "why": ""}
    size = os.fstat(fd).st_size
    assert int(lib.cl_trace_bytes(1, 256)) <= size < int(lib.cl_trace_bytes(1, 256)) + 2 * mmap.PAGESIZE
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(fd, b"x")
    with pytest.raises(PermissionError):
        os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDWR)) or mmap.mmap(fd, size, prot=mmap.PROT_WRITE)
    with Segment(fd) as segment:
        assert (segment.name, segment.pid, segment.mode) == ("kept", os.getpid(), "sampled")
        assert [ring.overwritten for ring in segment.counts()] == [0]


def test_it_is_switched_while_it_runs(attach: Attach, socket_path: str) -> None:
    runtime = attach("kept")
    for mode, how in (("off", 1), ("full", 3), ("sampled", 2), ("full", 3)):
        _, fd = control.trace(socket_path, "kept", how=how)
        os.close(fd)
        wait_until(lambda mode=mode: runtime.trace == mode, 60, f"it to be traced {mode}")
    with pytest.raises(CorelaneError, match="way 4 to trace is none"):
        control.trace(socket_path, "kept", how=4)
    assert runtime.trace == "full"


def test_the_command_switches_and_reads(attach: Attach, socket_path: str, capsys: Any) -> None:
    runtime = attach("kept")
    words = ["trace", "--socket", socket_path, "--app", "kept", "--mode", "full", "--seconds", "0.1", "--json"]
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["mode"], document["app"], runtime.trace) == ("full", "kept", "full")
    assert [set(ring) for ring in document["rings"]] == [{"written", "overwritten", "missed", "garbage"}]
    assert main(["trace", "--pid", str(os.getpid()), "--mode", "full"]) == 2
    assert "goes by the iokernel of an application" in capsys.readouterr().err


def test_what_cannot_be_is_refused_in_words(attach: Attach, socket_path: str) -> None:
    attach("silent", trace="off")
    said, fd = control.trace(socket_path, "silent")
    assert (said["segment"], said["why"], fd) == (False, "no runtime of it traces", -1)
    with pytest.raises(CorelaneError, match="silent cannot be traced: no runtime of it traces"):
        control.trace(socket_path, "silent", how=3)
    with pytest.raises(CorelaneError, match="no application of the name nobody is attached"):
        control.trace(socket_path, "nobody")
    with pytest.raises(CorelaneError, match="attached by process 1 "):
        control.trace(socket_path, "silent", pid=1)


def test_a_connection_is_given_one_segment(attach: Attach, socket_path: str) -> None:
    """They would wait in its socket, and nobody may have so many under way."""
    attach("kept")
    err, text, fd = ffi.new("char[256]"), ffi.new("char **"), ffi.new("int *")
    sock = lib.cl_control_connect(os.fsencode(socket_path), 5000, err)
    ask = ffi.new("struct cl_control_trace *", {"name": b"kept"})
    assert lib.cl_control_trace(sock, ask, text, fd, 5000, err) > 0
    os.close(fd[0])
    lib.cl_control_free(text[0])
    assert lib.cl_control_trace(sock, ask, text, fd, 5000, err) == -errno.EBUSY
    assert b"a connection is given one trace: connect again" in ffi.string(err)
    assert fd[0] == -1
    lib.cl_control_close(sock)


@needs_root
def test_another_user_neither_reads_nor_switches_it(attach: Attach, socket_path: str) -> None:
    runtime = attach("kept")
    asked = [sys.executable, "-c", ASK, socket_path]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "13 trace kept: refused by the iokernel: user 65534 may not trace kept, which is of user 0" in line
    assert runtime.trace == "sampled"
