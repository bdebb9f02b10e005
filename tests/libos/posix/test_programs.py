"""What becomes of a process: forks, a runtime that cannot be made, a configuration that is wrong, idleness."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import INSIDE, OURS, preloaded, python, run

FORKS = ["fork", "_Fork", "clone", "call"]  # of the last three no handler of pthread_atfork is told


@pytest.mark.parametrize("how", FORKS)
def test_a_child_may_close_and_no_more(stock: Callable[[str], Path], how: str) -> None:
    said = run(stock("forks"), OURS, "after", how, config=INSIDE).splitlines()
    sentence = next(line for line in said if line.startswith("corelane: "))
    assert "forked from the one that has the sockets" in sentence
    said.remove(sentence)
    assert said == ["child: -1 -1 ECHILD", "closed: 0 0", "another: 1 0", "parent: 5 5 hello"]


@pytest.mark.parametrize("how", FORKS)
def test_a_child_of_one_without_a_runtime_makes_its_own(stock: Callable[[str], Path], how: str) -> None:
    said = run(stock("forks"), OURS, "before", how, config=INSIDE).splitlines()
    assert said == ["child: 5 5 hello", "closed: 0 0", "another: 1 0"]


def test_datagrams_to_other_addresses_are_linux_and_said(stock: Callable[[str], Path]) -> None:
    said = run(stock("datagrams"), OURS, "apart", config=INSIDE).splitlines()
    sentences = [line for line in said if line.startswith("corelane: ")]
    assert "is Linux' from now on" in sentences[0]
    assert "no answer to it is received" in sentences[1]
    assert len(sentences) == 2
    assert [line for line in said if line not in sentences] == [
        "sendto: 1",
        "recvfrom: 1",
        "the same port: 1",
        "answer: 2",
        "recv: 2",
        "bind by name: 0",
        "sendto: 3",
        "recv: 3",
        "to the server: 3",
        "recv: 3",
    ]


def test_what_is_refused_is_said_once_by_its_name(stock: Callable[[str], Path]) -> None:
    said = run(stock("pipes"), OURS, "datagrams", config=INSIDE).splitlines()
    (sentence,) = (line for line in said if line.startswith("corelane: "))
    assert "splice is not to be had of datagram sockets" in sentence
    said.remove(sentence)
    assert said == ["bind: 0", "connect: 0", "write: 1", "into: EINVAL", "out of: EINVAL", "in the pipe: 1"]


def test_connections_stay_where_they_are_polled(stock: Callable[[str], Path]) -> None:
    """What comes by the kthread of the thread that sent it is handed to that of the one that polls, in order; but for
    what siblings take while that thread is put aside. Where nothing is handed over one in a hundred is there."""
    said = run(stock("polled"), OURS, "300", config=f"{INSIDE},kthreads=4,poll=block,trace=1")
    assert "done" in said.splitlines()
    told = re.search(r"where they are polled: (\d+) times, elsewhere: (\d+)", said)
    assert told is not None, said
    at_home, elsewhere = map(int, told.groups())
    assert at_home + elsewhere >= 6 * 250, "of each request, once it is known who polls, and of most answers"
    assert 4 * at_home > elsewhere, said


def test_io_uring_is_refused(stock: Callable[[str], Path]) -> None:
    said = run(stock("past"), OURS, "io_uring", config=INSIDE).splitlines()
    (sentence,) = (line for line in said if line.startswith("corelane: "))
    assert "io_uring is not to be had" in sentence
    said.remove(sentence)
    assert said == ["io_uring_setup: ENOSYS", "io_uring_setup: ENOSYS", "write: 3", "read: 3"]


@pytest.mark.parametrize(
    ("sequence", "sentences", "results"),
    [
        (
            "sent",
            ["cannot be given to another process"],
            [
                "socketpair: 0",
                "sendmsg: EOPNOTSUPP",
                "sendmmsg: EOPNOTSUPP",
                "of Linux': 1",
                "recvmsg: 1",
            ],
        ),
        (
            "by_signals",
            ["O_ASYNC (SIGIO) is not to be had", "aio_read, aio_write and lio_listio are not to be had"],
            [
                "FIOASYNC: EINVAL",
                "FIOASYNC off: 0",
                "O_ASYNC: EINVAL",
                "aio_read: ENOSYS",
                "aio_write: ENOSYS",
                "lio_listio: ENOSYS",
            ],
        ),
    ],
)
def test_what_would_leave_the_dataplane_is_refused(
    stock: Callable[[str], Path], sequence: str, sentences: list[str], results: list[str]
) -> None:
    said = run(stock("given"), OURS, sequence, config=INSIDE).splitlines()
    lines = [line for line in said if line.startswith("corelane: ")]
    assert [line for line in said if line not in lines] == results
    assert len(lines) == len(sentences), "each once"
    assert all(part in line for part, line in zip(sentences, lines, strict=True))


OPTIONS = """
import errno, socket
tcp, udp = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for s in (tcp, udp):
    s.bind(("OURS", 0))
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 16)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 9)
    print(s.getsockopt(socket.IPPROTO_IP, socket.IP_TOS), s.getsockopt(socket.IPPROTO_IP, socket.IP_TTL))
for _ in range(2):
    try:
        udp.setsockopt(socket.IPPROTO_UDP, 103, 1000)  # UDP_SEGMENT
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


def test_options_that_have_no_effect_are_said_and_segments_refused() -> None:
    done = python(OPTIONS.replace("OURS", OURS), config=INSIDE)
    assert done.stdout.splitlines() == ["16 9", "16 9", "ENOPROTOOPT", "ENOPROTOOPT"]
    sentences = done.stderr.splitlines()
    assert "an option of IP (IP_TOS, IP_TTL" in sentences[0]
    assert "UDP_SEGMENT is not to be had" in sentences[1]
    assert len(sentences) == 2, "each once"


@pytest.mark.parametrize(
    ("program", "sequence", "said_of"), [("asks", "set", 4), ("asks", "connections", 4), ("nowhere", "options", 1)]
)
def test_options_are_taken_as_linux_takes_them(
    stock: Callable[[str], Path], program: str, sequence: str, said_of: int
) -> None:
    """But for a sentence where one has no effect."""
    said = run(stock(program), OURS, sequence, config=INSIDE).splitlines()
    sentences = [line for line in said if line.startswith("corelane: ")]
    assert [line for line in said if line not in sentences] == run(stock(program), "127.0.0.1", sequence).splitlines()
    assert all("no effect" in line for line in sentences)
    assert len(sentences) == said_of


HELD_BACK = """
import errno, socket
UDP_CORK, SO_ZEROCOPY, IP_MTU_DISCOVER, IP_MINTTL, TCP_MD5SIG, TCP_REPAIR = 1, 60, 10, 21, 14, 19
tcp, udp, listener = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket()
for s in (udp, listener):
    s.bind(("OURS", 0))
listener.listen()
tcp.connect(listener.getsockname())
udp.connect(udp.getsockname())
def refused(call):
    try:
        call()
    except OSError as error:
        print(errno.errorcode[error.errno])
refused(lambda: tcp.send(b"!", socket.MSG_OOB))
refused(lambda: udp.send(b"x", socket.MSG_MORE))
refused(lambda: udp.setsockopt(socket.IPPROTO_UDP, UDP_CORK, 1))
udp.setsockopt(socket.IPPROTO_UDP, UDP_CORK, 0)
tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 8)
refused(lambda: tcp.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1))
tcp.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, 2)
tcp.setsockopt(socket.IPPROTO_IP, IP_MINTTL, 255)
refused(lambda: tcp.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1))
refused(lambda: listener.setsockopt(socket.IPPROTO_TCP, TCP_MD5SIG, bytes(216)))
"""


def test_what_would_be_sent_or_told_otherwise_is_said() -> None:
    done = python(HELD_BACK.replace("OURS", OURS), config=INSIDE)
    assert done.stdout.splitlines() == ["ENOTSUP", "ENOTSUP", "ENOPROTOOPT", "ENOTSUP", "EPERM", "ENOPROTOOPT"]
    sentences = done.stderr.splitlines()
    said = ("no urgent data", "MSG_MORE is not to be had of datagrams", "UDP_CORK is not", "SO_RCVLOWAT has no effect")
    said += (
        "SO_ZEROCOPY is not to be had",
        "an option of IP",
        "TCP_REPAIR is not to be had",
        "TCP_MD5SIG is not to be",
    )
    assert all(part in line for part, line in zip(said, sentences, strict=True))


INHERITS = """
import os, socket, sys
USES = '''
import errno, fcntl, os, socket, sys
fd, copy = int(sys.argv[1]), os.dup(int(sys.argv[1]))
os.dup2(fd, copy)
print(fcntl.fcntl(fd, 11))  # F_GETSIG
if sys.argv[2] == "uses":
    for of in (fd, copy):
        try:
            os.read(of, 1)
        except OSError as error:
            print(errno.errorcode[error.errno])
os.close(copy)
os.close(fd)
print("closed")
'''
s = socket.socket()
s.bind(("OURS", 7001))
s.listen()
s.set_inheritable(True)
os.execv("/usr/bin/python3", ["python3", "-S", "-c", USES, str(s.fileno()), sys.argv[1]])
"""


def test_a_socket_that_comes_by_exec_is_said_to_be_not_connected() -> None:
    """When it is used: many come to programs that only close them, or do not know of them."""
    done = python(INHERITS.replace("OURS", OURS), "uses", config=INSIDE)
    assert done.stdout.splitlines() == ["0", "ENOTCONN", "ENOTCONN", "closed"]
    assert done.stderr.count("came to this program by exec is not connected here") == 1
    assert done.stderr.count("\n") == 1
    done = python(INHERITS.replace("OURS", OURS), "closes", config=INSIDE)
    assert (done.stdout.splitlines(), done.stderr) == (["0", "closed"], "")


def test_traced_calls_say_where_they_went(stock: Callable[[str], Path]) -> None:
    said = run(stock("datagrams"), OURS, "elsewhere", config=f"{INSIDE},trace=1")
    lines = [line.split(": ", 2)[2] for line in said.splitlines() if line.startswith("corelane: ")]
    assert re.match(r"descriptor \d+: bind 127.0.0.1:0: Linux'", lines[0])
    assert re.match(r"descriptor \d+: sendto 127.0.0.1:\d+: Linux'", lines[1])
    assert re.match(r"descriptor \d+: connect 127.0.0.1:\d+: Linux'", lines[2])
    counts = dict(line.split(" of the dataplane's: ") for line in lines[3:])
    assert counts["socket"] == "3 calls, 0 failed"
    said = run(stock("datagrams"), OURS, "bytes", config=f"{INSIDE},trace=1")
    assert re.search(rf"descriptor \d+: bind {OURS}:0: the dataplane's", said)
    assert "sendto of the dataplane's: 5 calls, 2 failed" in said


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("nic=memory", "give the program's own address"),
        ("address=10.0.0.1/24", "give either nic="),
        (f"{INSIDE},kthreads=65", "kthreads=65"),
        (f"{INSIDE},poll=spin", "poll=spin"),
        (f"{INSIDE},listen=0", "listen=0"),
        (f"{INSIDE},listen=10.77.0:80", "listen=10.77.0:80"),
        (f"{INSIDE},listen=10.77.0.256", "listen=10.77.0.256"),
        (f"{INSIDE},listen=80;;81", "listen=80;;81"),
        (f"{INSIDE},listen=*.*.*.*:0", "listen=*.*.*.*:0"),
        (f"{INSIDE},loopback=2", "loopback=2"),
        (f"{INSIDE},trace=yes", "trace=yes"),
        ("nic=af_xdp:a,address=10.0.0.1/24", "the descriptors of the XDP program are missing"),
        ("nic=af_xdp:a,xskmap=x,link=4,address=10.0.0.1/24", "xskmap=x"),
        ("nonsense", "key=value"),
        ("nic=tap:a,socket=b,address=10.0.0.1/24", "give either nic="),
    ],
)
def test_a_wrong_configuration_is_one_sentence(words: str, reason: str) -> None:
    done = subprocess.run(["true"], env=preloaded(words), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("corelane: true: ")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_runtime_ends_the_program_with_the_reason(stock: Callable[[str], Path], tmp_path: Path) -> None:
    done = subprocess.run(
        [str(stock("calls")), OURS, "bytes"],
        env=preloaded(f"socket={tmp_path}/none.sock,name=x"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "none.sock" in done.stderr


def test_what_has_no_sockets_starts_no_runtime() -> None:
    """Nor does it open anything: the runtime is made when a call first needs it."""
    done = subprocess.run(
        ["ls", "/proc/self/fd"],
        env=preloaded("nic=tap:none,address=10.0.0.1/24"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout.split()) <= 4


@pytest.mark.parametrize("poll", ["adaptive", "block"])
def test_an_idle_server_sleeps(stock: Callable[[str], Path], poll: str) -> None:
    """Time of the processor, which does not depend on what else runs."""
    server = subprocess.Popen(
        [str(stock("echo")), "7000", "2", "each"],
        env=preloaded(f"{INSIDE},poll={poll}"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    with server:
        assert server.stdout.readline() == "serving\n"
        before = cpu_s(server.pid)
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(1.0)
        used = cpu_s(server.pid) - before
        server.send_signal(signal.SIGTERM)
        assert server.stdout.read() == "accepted 0\n"
        assert server.wait() == 0
    assert used <= 0.05


def cpu_s(pid: int) -> float:
    """What a process has used, to a tick."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
