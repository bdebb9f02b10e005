"""The control socket: the handshake, and everything that is not one."""

from __future__ import annotations

import os
import random
import socket
import stat
import subprocess
import sys
import threading

import pytest
from cltest import open_descriptors, stop_process, wait_until
from cltest.control import (
    HEADER,
    answer,
    connect,
    garbled,
    hello,
    kthreads,
    moves,
    policy,
    refusal,
    send_in_pieces,
)

from corelane.drivers.port.port import PortMemory, open_port
from corelane.iokernel import Access, AppConfig, AppMemory, Iokernel, Patience
from corelane.iokernel._native import ffi, lib
from corelane.runtime.errors import CorelaneError, Refused


def control(io: Iokernel) -> dict:
    return io.stats()["control"]


def test_a_second_iokernel_on_the_same_socket_is_refused(start, socket_path):
    start()
    with pytest.raises(Refused, match=rf"one listens there already \(pid {os.getpid()}\)"):
        Iokernel(socket_path).start()
    code = "import sys; from corelane.iokernel import Iokernel; Iokernel(sys.argv[1]).start()"
    done = subprocess.run([sys.executable, "-c", code, socket_path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].endswith("(stop it, or choose another socket path)")


def test_the_socket_of_a_killed_iokernel_is_taken_over(start, child, socket_path):
    other = child("iokernel.py", socket_path)
    other.kill()
    other.wait()
    assert stat.S_ISSOCK(os.stat(socket_path).st_mode), "SIGKILL leaves the file behind"
    start()
    open_port(socket_path, name="x").close()


def test_a_stopped_iokernel_leaves_no_file_behind_and_starts_again(socket_path):
    io = Iokernel(socket_path)
    for _ in range(2):
        with io:
            open_port(socket_path, name="x").close()
        assert os.listdir(os.path.dirname(socket_path)) == []


def test_other_files_in_its_place_are_refused(socket_path):
    with open(socket_path, "w") as file:
        file.write("precious")
    with pytest.raises(Refused, match="a file of another kind is there"):
        Iokernel(socket_path).start()
    os.unlink(socket_path)
    with socket.socket(socket.AF_UNIX) as foreign:
        foreign.bind(socket_path)
        foreign.listen()
        with pytest.raises(Refused, match="another program listens there"):
            Iokernel(socket_path).start()


def test_nobody_listens(socket_path):
    with pytest.raises(CorelaneError, match=r"no iokernel listens on .*: start one with `corelane up`"):
        open_port(socket_path, name="x")


def test_the_same_name_twice_is_refused_and_free_again_after_the_end(start, attach, socket_path):
    start()
    with attach("twin"), pytest.raises(CorelaneError, match=r"the name twin is taken: process \d+ is attached"):
        open_port(socket_path, name="twin")
    for _ in range(50):  # at once: the end of the old connection is seen before the new one is refused
        attach("twin").close()


@pytest.mark.parametrize("name", [b"", b"a b", b"\xff\xfe", b"a/b", b"x" * 32])
def test_impossible_names_are_refused(start, socket_path, name):
    io = start()
    with connect(socket_path) as sock:
        sock.sendall(hello(name))
        assert "no application name" in refusal(sock)
    assert control(io)["refused"] == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"n_kthreads": 65},
        {"n_kthreads": 0xFFFFFFFF},
        {"rx_slots": 100},
        {"tx_slots": 1 << 21},
        {"n_rx": 1},
        {"n_tx": 0xFFFFFF},
        {"buffer_bytes": 100},
        {"buffer_bytes": 1 << 20},
        {"n_rx": 4_000_000, "buffer_bytes": 16384},
        {"n_kthreads": 0xFFFFFFFF, "n_rx": 0xFFFFFFFF, "n_tx": 0xFFFFFFFF},
        {"ipv4": 0x01020304},
    ],
)
def test_impossible_wishes_are_refused_with_what_is_possible(start, socket_path, fields):
    start()
    with connect(socket_path) as sock:
        sock.sendall(hello(**fields))
        text = refusal(sock)
        assert any(word in text for word in ("cannot be", "too large", "is not in")), text


def test_settings_win_over_wishes(start, attach, socket_path):
    io = start(apps={"small": AppConfig(kthreads=2, rx_buffers=128, tx_buffers=64)}, memory=AppMemory(max_apps=2))
    small = attach("small", kthreads=2, memory=PortMemory(rx_buffers=4096))
    assert small.buffers == 192
    with pytest.raises(CorelaneError, match="the name small is taken"):
        open_port(socket_path, name="small")
    attach("b")
    with pytest.raises(CorelaneError, match="2 applications are attached already"):
        open_port(socket_path, name="c")
    assert io.apps == ("small", "b")


def test_the_same_address_twice_is_refused(start, attach, socket_path):
    start(apps={n: AppConfig(ip="10.77.0.9") for n in "ab"})
    attach("a")
    with pytest.raises(CorelaneError, match="another application has this address"):
        open_port(socket_path, name="b")


def test_cores_are_distinct_while_they_last_and_shared_ones_are_not_spun_on(start, attach):
    start(worker_cpus=[5, 6, 7])
    assert (attach("a").info().cpus, attach("a2").info().may_spin) == ((5,), True)
    b = attach("b", kthreads=2).info()
    assert (b.cpus, b.may_spin) == ((7, 5), False)
    attach("c").close()


def other_version() -> bytes:
    message = hello()
    message[4:6] = (lib.CL_CONTROL_VERSION + 1).to_bytes(2, sys.byteorder)
    return bytes(message)


def test_without_managed_cores_there_is_nothing_to_name_or_to_choose(start, socket_path):
    start()
    with connect(socket_path) as sock:
        sock.sendall(hello())
        answer(sock)
        sock.sendall(kthreads([os.getpid()], 34))
        assert "cores are not managed here" in refusal(sock)
    for ask in (policy(b"fair"), moves(0)):
        with connect(socket_path) as sock:
            sock.sendall(ask)
            assert "corelane up --policy delay" in refusal(sock)


def of_size(n: int) -> bytes:
    message = hello()
    message[8:12] = n.to_bytes(4, sys.byteorder)
    return bytes(message)


@pytest.mark.parametrize(
    ("sent", "counter", "text"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "garbage", "no corelane control message"),
        (other_version(), "wrong_version", "use the same corelane for both"),
        (of_size(0), "garbage", "no message of type"),
        (of_size(2**32 - 1), "garbage", "no message of type"),
        (bytes(hello()[:6]) + b"\x63\x00" + bytes(hello()[8:]), "garbage", "no message of type 99"),
        (HEADER.pack(lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION, 99, 0, 0), "garbage", "no message of type 99"),
        (bytes(hello()) * 2, "garbage", "registered already"),
    ],
    ids=["http", "version", "empty", "huge", "type", "nothing", "twice"],
)
def test_what_is_no_message_is_refused_and_counted(start, socket_path, sent, counter, text):
    io = start()
    with connect(socket_path) as sock:
        sock.sendall(sent)
        got = b""
        while data := sock.recv(4096):
            got += data
        assert text.encode() in got
    assert control(io)[counter] == 1
    wait_until(lambda: io.apps == ())
    open_port(socket_path, name="honest").close()


def test_an_old_client_is_told_about_versions(socket_path):
    """Our client against a peer of another version, and against a peer that is no iokernel."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(socket_path)
        listener.listen()
        replies = [
            HEADER.pack(lib.CL_CONTROL_MAGIC, 99, lib.CL_CONTROL_ACCEPT, HEADER.size, 0),
            b"220 mail.example ESMTP\r\n",
            b"",
            HEADER.pack(lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION, 77, 16, 0),
        ]

        def serve() -> None:
            for reply in replies:
                sock, _ = listener.accept()
                sock.recv(4096)
                sock.sendall(reply)
                sock.close()

        thread = threading.Thread(target=serve)
        thread.start()
        for expected in ("speaks control protocol 99", "not a corelane iokernel", "without an answer", "type 77"):
            with pytest.raises(CorelaneError, match=expected):
                open_port(socket_path, name="x")
        thread.join()


def test_a_stopped_iokernel_is_a_timeout_and_not_a_hang(child, socket_path):
    import signal

    other = child("iokernel.py", socket_path)
    stop_process(other.pid)
    with pytest.raises(CorelaneError, match="does not answer in time: is it stopped"):
        open_port(socket_path, name="x", timeout_s=0.2)
    other.send_signal(signal.SIGCONT)
    open_port(socket_path, name="x").close()


def test_slow_clients_are_dropped_and_others_served(start, socket_path):
    io = start(patience=Patience(client_s=0.2))
    with connect(socket_path) as silent, connect(socket_path) as partial:
        partial.sendall(hello()[:50])
        open_port(socket_path, name="quick").close()
        assert silent.recv(1) == b""
        assert partial.recv(1) == b""
    assert control(io)["timed_out"] == 2


def test_messages_may_come_in_pieces(start, socket_path):
    start()
    with connect(socket_path) as sock:
        for byte in hello(b"pieces"):
            sock.sendall(bytes([byte]))
        assert HEADER.unpack_from(answer(sock))[2] == lib.CL_CONTROL_ACCEPT


def test_statistics_are_json(start, attach, socket_path):
    import json

    io = start()
    attach("a")
    err, text = ffi.new("char[256]"), ffi.new("char **")
    fd = lib.cl_control_connect(socket_path.encode(), 1000, err)
    assert fd >= 0
    for _ in range(3):
        n = lib.cl_control_stats(fd, text, 1000, err)
        assert n > 0, ffi.string(err)
        stats = json.loads(ffi.string(text[0]))
        lib.cl_control_free(text[0])
        assert stats["apps"][0]["name"] == "a"
        assert stats["generation"] == io.stats()["generation"]
    lib.cl_control_close(fd)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="changes its user: run as root")
def test_only_those_allowed_may_attach(socket_path):
    code = (
        "import os, sys; from corelane.drivers.port.port import open_port;"
        "os.setgroups([int(g) for g in sys.argv[4:]]); os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[2]));"
        "open_port(sys.argv[1], name='x').close()"
    )

    def attempt(uid: int, gid: int, *groups: int) -> str:
        args = [sys.executable, "-c", code, socket_path, *map(str, (uid, gid, *groups))]
        done = subprocess.run(args, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]

    os.chmod(os.path.dirname(socket_path), 0o755)
    with Iokernel(socket_path, access=Access(mode=0o600)):
        assert "not allowed to connect" in attempt(65534, 65534)
    with Iokernel(socket_path, access=Access(mode=0o666, uids=(1234,), gids=(4321,))) as io:
        assert "user 65534 may not attach" in attempt(65534, 65534)
        assert control(io)["not_allowed"] == 1
        assert attempt(1234, 65534) == ""
        assert attempt(65534, 4321) == ""
        assert attempt(65534, 65534, 4321) == ""


def test_random_bytes_never_end_the_server(start, socket_path, seed):
    """Messages with random bytes changed, cut, doubled, sent in random pieces; afterwards all is well."""
    io = start(patience=Patience(client_s=0.5))
    rng = random.Random(seed)
    stats_request = HEADER.pack(lib.CL_CONTROL_MAGIC, lib.CL_CONTROL_VERSION, lib.CL_CONTROL_STATS, HEADER.size, 0)
    for _ in range(400):
        sent = [hello(b"f%d" % rng.randrange(9)), stats_request, rng.randbytes(200), kthreads([1], 34), policy(b"fair")]
        sent += [moves(0), moves(rng.randrange(3), rng.randrange(2**64))]
        with connect(socket_path) as sock:
            send_in_pieces(sock, garbled(rng.choice(sent), rng), rng)
    wait_until(lambda: io.apps == ())
    open_port(socket_path, name="honest").close()
    assert control(io).get("internal_error", 0) == 0, control(io)["last_error"]
    assert open_descriptors() < 200
