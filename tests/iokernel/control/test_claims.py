"""Iokernels that use the same CPUs hear of each other, and are not fooled (iokernel/control/claims.py)."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cltest import die_with_parent

from corelane.iokernel import Iokernel
from corelane.iokernel.control import claims
from corelane.iokernel.control.claims import OwnClaim

CPU = min(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Everybody's folder is the test's own."""
    with tempfile.TemporaryDirectory(prefix="cl-claims-") as name:
        monkeypatch.setattr(claims, "FOLDERS", (name,))
        Path(name).chmod(0o1777)
        if os.geteuid() != 0:
            monkeypatch.setattr(claims, "shared_folder", lambda: name)
        yield Path(name)


@pytest.fixture
def looping() -> Iterator[Callable[[int], None]]:
    """`looping(cpu)`: a thread of this process looks like a loop that polls on that CPU."""
    over = threading.Event()
    threads: list[threading.Thread] = []

    def start(cpu: int) -> None:
        ready = threading.Event()

        def loop() -> None:
            Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("cl-loop-0")
            os.sched_setaffinity(0, {cpu})
            ready.set()
            over.wait()

        threads.append(threading.Thread(target=loop))
        threads[-1].start()
        ready.wait()

    yield start
    over.set()
    for thread in threads:
        thread.join()


@pytest.fixture
def claim() -> Iterator[Callable[..., OwnClaim]]:
    made: list[OwnClaim] = []

    def take(*args: Any) -> OwnClaim:
        made.append(OwnClaim(*args))
        return made[-1]

    yield take
    for one in made:
        one.close()


@pytest.mark.parametrize(
    ("cpus", "what", "option"),
    [("loop_cpus", f"polls on CPU {CPU}", "--cores"), ("worker_cpus", f"gives CPU {CPU} to applications", "")],
)
def test_the_second_names_the_first_and_what_to_change(socket_path: str, cpus: str, what: str, option: str) -> None:
    said: list[tuple[str, str]] = []
    with (
        Iokernel(socket_path, **{cpus: [CPU]}),
        Iokernel(socket_path + "2", **{cpus: [CPU]}, tell=lambda *event: said.append(event)),
    ):
        pass
    ((event, line),) = said
    assert event == "shared"
    assert f"another iokernel, on {socket_path} (pid {os.getpid()}), {what}" in line
    assert option in line


def test_one_that_has_stopped_is_not_in_the_way(socket_path: str, folder: Path) -> None:
    said: list[tuple[str, str]] = []
    with Iokernel(socket_path, loop_cpus=[CPU], tell=lambda *event: said.append(event)):
        assert len(list(folder.glob("corelane-cpus-*"))) == 1
    with Iokernel(socket_path, loop_cpus=[CPU], tell=lambda *event: said.append(event)):
        pass
    assert said == []
    assert list(folder.glob("corelane-cpus-*")) == []


def test_without_somebody_to_tell_it_is_logged(socket_path: str, caplog: pytest.LogCaptureFixture) -> None:
    with Iokernel(socket_path, loop_cpus=[CPU]), Iokernel(socket_path + "2", loop_cpus=[CPU]):
        pass
    assert [r.levelname for r in caplog.records if "another iokernel" in r.getMessage()] == ["WARNING"]


@pytest.mark.parametrize(
    ("loops", "workers", "says"),
    [
        ([1], [], "polls on CPU 1"),
        ([9], [1], "polls on CPU 1"),
        ([2], [], "gives CPU 2 to applications"),
        ([9], [2, 3], "gives CPU 2-3 to applications"),
        ([1], [2], "polls on CPU 1 and gives CPU 2 to applications"),
        ([9], [8], None),
    ],
)
def test_worker_cpus_count_as_well(claim, monkeypatch, loops: list[int], workers: list[int], says: str | None) -> None:
    monkeypatch.setattr(claims, "_confirmed", lambda *_: True)
    claim("/run/first.sock", [1], [2, 3])
    found = claim("/run/second.sock", loops, workers).shared()
    assert [says in line for line in found] == ([True] if says else [])


def test_it_is_believed_as_far_as_the_kernel_confirms_it(claim, looping) -> None:
    first = claim("/run/first.sock", [CPU], [])
    second = claim("/run/second.sock", [CPU], [])
    assert second.shared() == [], "it says so, and no loop of it runs there"
    looping(CPU)
    assert len(second.shared()) == 1
    first.close()
    assert second.shared() == []


def planted(folder: Path, content: bytes, name: str = "corelane-cpus-1-x") -> int:
    """A file of somebody else's, locked."""
    fd = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o644)
    os.write(fd, content)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def said(pid: int, socket: str = "/run/x", loops: object = (CPU,)) -> bytes:
    return json.dumps({"pid": pid, "socket": socket, "loops": loops, "workers": []}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe nothing",
        b"[" * 8000,
        b'{"pid": "x"}',
        said(1, loops="abc"),
        said(2**70),
        said(-1),
        said(0),
        json.dumps({"pid": 1e400, "socket": 1, "loops": [None], "workers": {}}).encode(),
    ],
)
def test_what_is_no_claim_is_left_out(claim, looping, folder: Path, content: bytes) -> None:
    looping(CPU)
    fd = planted(folder, content)
    assert claim("/run/own.sock", [CPU], []).shared() == []
    os.close(fd)


def test_other_kinds_of_files_are_left_out(claim, folder: Path) -> None:
    os.mkfifo(folder / "corelane-cpus-fifo")
    (folder / "corelane-cpus-link").symlink_to("/etc/passwd")
    (folder / "corelane-cpus-folder").mkdir()
    assert claim("/run/own.sock", [CPU], []).shared() == []


def test_a_path_is_shown_without_what_a_terminal_obeys(claim, looping, folder: Path) -> None:
    looping(CPU)
    fd = planted(folder, said(os.getpid(), "/run/\x1b[2J\nx" + "y" * 5000))
    (line,) = claim("/run/own.sock", [CPU], []).shared()
    assert line.isprintable()
    assert len(line) < 500
    os.close(fd)


def test_files_that_dead_processes_left_are_removed(claim, folder: Path) -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    os.close(planted(folder, said(child.pid), f"corelane-cpus-{child.pid}-a"))
    os.close(planted(folder, said(os.getpid()), f"corelane-cpus-{os.getpid()}-a"))  # it is about to lock it
    assert claim("/run/own.sock", [CPU], []).shared() == []
    assert not list(folder.glob(f"corelane-cpus-{child.pid}-*"))
    assert len(list(folder.glob(f"corelane-cpus-{os.getpid()}-*"))) == 2


STRANGER = """
import os, sys
from corelane.iokernel.control import claims
os.setgid(65534); os.setuid(65534)
fd = os.open(sys.argv[1] + "/corelane-cpus-1-a", os.O_RDWR | os.O_CREAT, 0o644)
import fcntl; fcntl.flock(fd, fcntl.LOCK_EX)
os.write(fd, sys.argv[2].encode())
print("ready", flush=True); sys.stdin.read()
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user: run as root")
def test_nobody_speaks_for_another_users_process(claim, looping, folder: Path) -> None:
    looping(CPU)
    args = [sys.executable, "-c", STRANGER, str(folder), said(os.getpid()).decode()]
    with subprocess.Popen(
        args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent
    ) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "ready\n"
        assert claim("/run/own.sock", [CPU], []).shared() == []


def test_no_folder_is_no_claim(socket_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "shared_folder", lambda: None)
    with Iokernel(socket_path, loop_cpus=[CPU]):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="the folder of a test belongs to its user: run as root")
def test_a_folder_in_which_others_could_remove_files_is_not_used(folder: Path) -> None:
    assert claims.shared_folder() == str(folder)
    folder.chmod(0o777)
    assert claims.shared_folder() is None
