"""Which threads an application may have managed, and how it names them."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cltest import die_with_parent, wait_until
from cltest.control import HEADER, answer, connect, hello, kind_of, kthreads, policy, refusal

from corelane.iokernel import Access
from corelane.iokernel._native import lib
from corelane.iokernel.control.kthreads import check_threads
from corelane.iokernel.control.server import ControlServer, Grant
from corelane.runtime.errors import ConfigError, CorelaneError, Refused
from corelane.runtime.peers import Peer

SIGNAL = signal.SIGRTMIN + 3
ROOT = os.geteuid() == 0


@pytest.fixture
def handler() -> Iterator[None]:
    """This process has a handler for SIGNAL."""
    before = signal.signal(SIGNAL, lambda *_: None)
    yield
    signal.signal(SIGNAL, before)


@pytest.fixture
def sibling() -> Iterator[int]:
    """Another thread of this process."""
    end, tids = threading.Event(), []
    started = threading.Event()

    def wait() -> None:
        tids.append(threading.get_native_id())
        started.set()
        end.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    started.wait()
    yield tids[0]
    end.set()
    thread.join()


@pytest.mark.usefixtures("handler")
def test_own_threads_with_a_handler_are_accepted(sibling):
    check_threads(os.getpid(), [os.getpid(), sibling], SIGNAL)
    check_threads(os.getpid(), [sibling], 0)  # no signal: the step is left out


@pytest.mark.usefixtures("handler")
@pytest.mark.parametrize(
    ("tids", "number", "said"),
    [
        ((1,), SIGNAL, r"thread 1 is none of process \d+"),
        ((0,), SIGNAL, "thread 0 is none"),
        ((-1,), SIGNAL, "thread -1 is none"),
        ((2**31 - 1,), SIGNAL, "is none of process"),
        (None, SIGNAL, "is named twice"),
        ("self", signal.SIGKILL, "signal 9 is not one to interrupt kthreads with"),
        ("self", signal.SIGTERM, "signal 15 is not one"),
        ("self", 65, "signal 65 is not one"),
        ("self", -1, "signal -1 is not one"),
        ("self", SIGNAL + 1, r"has no handler for signal \d+ \(install it before"),
    ],
)
def test_others_are_refused(tids: Any, number: int, said: str):
    me = os.getpid()
    named = {None: (me, me), "self": (me,)}.get(tids, tids) if not isinstance(tids, tuple) else tids
    with pytest.raises(Refused, match=said):
        check_threads(me, named, number)


def test_processes_that_are_not_seen_or_have_ended_are_refused():
    with pytest.raises(Refused, match="cannot be seen from here"):
        check_threads(0, [1], SIGNAL)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(Refused, match=f"thread {ended.pid} is none of process {ended.pid}"):
        check_threads(ended.pid, [ended.pid], SIGNAL)


@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="changes its user: run as root")
@pytest.mark.usefixtures("handler")
def test_threads_of_another_user_are_refused_with_what_to_do():
    code = (
        "import os, sys\n"
        "from corelane.iokernel.control.kthreads import check_threads; from corelane.runtime.errors import Refused\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "try: check_threads(int(sys.argv[1]), [int(sys.argv[1])], int(sys.argv[2]))\n"
        "except Refused as e: print(e, e.errno)"
    )
    args = [sys.executable, "-c", code, str(os.getpid()), str(int(SIGNAL))]
    said = subprocess.run(args, capture_output=True, text=True, check=True).stdout
    assert f"user 65534, may not signal and move threads of process {os.getpid()} (run both as the same user" in said


class Registry:
    """Stands for an iokernel that manages cores."""

    def __init__(self) -> None:
        self.managed: list[tuple[int, int, list[int], int]] = []
        self.left: list[int] = []
        self.ended_before = False  # anybody had left
        self.refusal: CorelaneError | None = None
        self.loading, self.loaded = threading.Event(), threading.Event()

    def register(self, message: Any, peer: Peer) -> Grant:
        fd = os.open("/dev/null", os.O_RDONLY)
        try:
            return Grant(7, HEADER.pack(lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION, 2, 16, 0), (0, 1, 2))
        finally:
            os.close(fd)

    def unregister(self, app: int) -> None:
        self.left.append(app)

    def sweep(self) -> bool:
        return False

    def end(self) -> None:
        self.ended_before = not self.left

    def find(self, name: str) -> int | None:
        return None

    def stats_json(self) -> bytes:
        return b"{}"

    def manage(self, app: int, pid: int, tids: list[int], number: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.managed.append((app, pid, tids, number))

    def set_policy(self, spec: str, params: str) -> str:
        if spec == "broken":
            raise ZeroDivisionError("by a policy's module")
        if spec == "refused":
            raise ConfigError("policy refused", "its trial found nonsense", "write every grant")
        if spec == "slow":
            self.loading.set()
            self.loaded.wait(20)
        return f"{spec} decides with {params}"


@pytest.fixture
def serve(socket_path: str) -> Iterator[Callable[[], tuple[ControlServer, Registry]]]:
    """`server, registry = serve()`: a control server over a Registry, in a thread."""
    running = []

    def start() -> tuple[ControlServer, Registry]:
        registry = Registry()
        server = ControlServer(socket_path, registry)
        thread = threading.Thread(target=server.serve)
        thread.start()
        running.append((server, registry, thread))
        return server, registry

    yield start
    for server, registry, thread in running:
        registry.loaded.set()
        server.stop()
        thread.join()


def registered(path: str) -> socket.socket:
    sock = connect(path)
    sock.sendall(hello())
    assert kind_of(answer(sock)) == lib.CL_CONTROL_ACCEPT
    return sock


def test_kthreads_are_named_once_a_registration(serve, socket_path):
    server, registry = serve()
    for attempt in range(2):  # the second is a registration of its own, as after a new iokernel
        with registered(socket_path) as sock:
            sock.sendall(kthreads([3, 4], 40))
            got = answer(sock)
            assert (kind_of(got), len(got)) == (lib.CL_CONTROL_KTHREADS_OK, HEADER.size)
            assert registry.managed == [(7, os.getpid(), [3, 4], 40)] * (attempt + 1)
            sock.sendall(kthreads([3, 4], 40))
            assert "kthreads are known already" in refusal(sock)
        wait_until(lambda attempt=attempt: len(registry.left) == attempt + 1)
    assert server.counts["managed"] == 2


def test_a_refusal_of_kthreads_ends_the_registration(serve, socket_path):
    _, registry = serve()
    registry.refusal = Refused("thread 3 is none of process 5", hint="name threads that run")
    with registered(socket_path) as sock:
        sock.sendall(kthreads([3], 40))
        assert refusal(sock) == "thread 3 is none of process 5 (name threads that run)"
    wait_until(lambda: registry.left == [7])


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (kthreads([], 40), "0 kthreads are not 1 to 64"),
        (kthreads([3], 40, n=65), "65 kthreads are not"),
        (kthreads([3], 40, n=2**32 - 1), "4294967295 kthreads are not"),
    ],
)
def test_impossible_numbers_of_kthreads_are_refused(serve, socket_path, message, said):
    serve()
    with registered(socket_path) as sock:
        sock.sendall(message)
        assert said in refusal(sock)


def test_kthreads_without_a_registration_are_refused(serve, socket_path):
    serve()
    with connect(socket_path) as sock:
        sock.sendall(kthreads([3], 40))
        assert "kthreads belong to a registered application" in refusal(sock)


@pytest.mark.parametrize("managed", [False, True])
def test_the_end_of_a_process_counts_even_if_a_child_holds_its_connection(serve, socket_path, managed):
    """Its name is free, and its thread ids may be another's a moment later: nobody may be signalled by them."""
    server, registry = serve()
    code = (
        "import os, sys\n"
        "from cltest.control import answer, connect, hello, kthreads\n"
        "sock = connect(sys.argv[1]); sock.sendall(hello()); answer(sock)\n"
        f"if {managed}: sock.sendall(kthreads([os.getpid()], 40)); answer(sock)\n"
        "if os.fork() == 0: sys.stdin.read(); os._exit(0)\n"
        "os._exit(0)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        [sys.executable, "-c", code, socket_path], stdin=subprocess.PIPE, env=environment, preexec_fn=die_with_parent
    ) as process:
        process.wait()
        wait_until(lambda: registry.left == [7])
        assert server.counts["process_ended"] == 1


def test_one_that_gives_up_says_so_before_it_lets_anybody_go(serve, socket_path):
    server, registry = serve()
    with registered(socket_path) as sock:
        server.stop()
        assert sock.recv(1) == b""
        assert registry.left == [7]
        assert registry.ended_before


def test_processes_whose_kthreads_are_managed_are_looked_at_whether_they_linger(serve, socket_path, monkeypatch):
    looked: list[int] = []

    def let_end(pid: int) -> int:
        looked.append(pid)
        return len(looked) == 1

    monkeypatch.setattr("corelane.iokernel.control.server.let_end", let_end)
    monkeypatch.setattr("corelane.iokernel.control.server._LINGERS_S", 0.001)
    server, _ = serve()
    with registered(socket_path) as sock:
        sock.sendall(kthreads([3], 40))
        answer(sock)
        wait_until(lambda: len(looked) > 2)  # again and again, though nothing else happens
    assert set(looked) == {os.getpid()}
    assert server.counts["lingering"] == 1


def test_a_policy_is_set_and_its_trials_sentence_comes_back(serve, socket_path):
    server, _ = serve()
    with connect(socket_path) as sock:
        sock.sendall(policy(b"fair", b"slice_us=10"))
        got = answer(sock)
        assert kind_of(got) == lib.CL_CONTROL_POLICY_OK
        assert got[HEADER.size :].rstrip(b"\0") == b"fair decides with slice_us=10"
    refused = {b"refused": "its trial found nonsense", b"broken": "ZeroDivisionError: by a policy's module"}
    for spec, said in refused.items():
        with connect(socket_path) as sock:
            sock.sendall(policy(spec))
            assert said in refusal(sock)
    assert (server.counts["policies"], server.counts["policy_refused"]) == (1, 2)


def test_others_are_served_while_a_policy_is_loaded(serve, socket_path):
    server, registry = serve()
    with connect(socket_path) as slow, connect(socket_path) as other:
        slow.sendall(policy(b"slow"))
        assert registry.loading.wait(20)
        registered(socket_path).close()
        other.sendall(policy(b"fair"))
        assert "another policy is being loaded" in refusal(other)
        registry.loaded.set()
        assert kind_of(answer(slow)) == lib.CL_CONTROL_POLICY_OK
    assert server.counts["busy"] == 1


def test_who_does_not_wait_for_the_answer_disturbs_nobody(serve, socket_path):
    server, registry = serve()
    with connect(socket_path) as slow:
        slow.sendall(policy(b"slow"))
        assert registry.loading.wait(20)
    registry.loaded.set()
    with connect(socket_path) as sock:
        wait_until(lambda: not server._loader.busy)
        sock.sendall(policy(b"delay"))
        assert kind_of(answer(sock)) == lib.CL_CONTROL_POLICY_OK


@pytest.mark.root
@pytest.mark.skipif(not ROOT, reason="changes its user: run as root")
def test_only_root_and_the_iokernels_user_choose_the_policy(socket_path):
    server = ControlServer(socket_path, Registry(), Access(mode=0o666, uids=(65534,)))
    thread = threading.Thread(target=server.serve)
    thread.start()
    os.chmod(os.path.dirname(socket_path), 0o755)
    code = (
        "import os, sys; from cltest.control import connect, policy, refusal; os.setgid(65534); os.setuid(65534);"
        "sock = connect(sys.argv[1]); sock.sendall(policy(b'delay')); print(refusal(sock))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    args = [sys.executable, "-c", code, socket_path]
    said = subprocess.run(args, capture_output=True, text=True, check=True, env=environment).stdout
    server.stop()
    thread.join()
    assert said.strip() == "user 65534 may not choose the policy, only root may"


def test_random_messages_about_cores_never_end_the_server(serve, socket_path, seed):
    server, _registry = serve()
    rng = random.Random(seed)
    messages = [kthreads([3, 4], 40), kthreads([], 40), policy(b"fair", b"x=1"), policy(b"x" * 239, b"y" * 255)]
    for _ in range(300):
        message = bytearray(rng.choice(messages))
        for _ in range(rng.choice([0, 0, 1, 3, 20])):
            message[rng.randrange(len(message))] = rng.randrange(256)
        if rng.random() < 0.3:
            message = message[: rng.randrange(len(message))]
        with connect(socket_path) as sock:
            try:
                if rng.random() < 0.5:
                    sock.sendall(hello(b"f%d" % rng.randrange(9)))
                for at in range(0, len(message), step := rng.randrange(1, 300)):
                    sock.sendall(message[at : at + step])
                if rng.random() < 0.5:
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(65536):
                        pass
            except OSError:
                pass  # refused in the middle of it
    wait_until(lambda: len(server._connections) == 0)
    with registered(socket_path) as sock:
        sock.sendall(kthreads([3], 40))
        assert kind_of(answer(sock)) == lib.CL_CONTROL_KTHREADS_OK
    assert server.counts.get("internal_error", 0) == 0, server.last_error
    assert len(os.listdir("/proc/self/fd")) < 200
