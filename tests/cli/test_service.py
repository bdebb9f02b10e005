"""corelane compile, and services that it made: run without Python, attached and embedded; what is refused, and why."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cltest import wait_until
from cltest.commands import ask
from cltest.netns import skip_without_af_xdp
from cltest.warm import Warm
from elftools.elf.elffile import ELFFile

from corelane.cli import service as services
from corelane.cli import targets, watch
from corelane.cli.config import library
from corelane.drivers.nic.memory import memory_link
from corelane.iokernel import AppConfig, Iokernel
from corelane.libos import Runtime
from corelane.runtime.errors import CorelaneError

SERVICE = """
import numpy as np

from corelane import libos
from corelane.apps.http import handlers as http
from corelane.libos.numba import atomics

counts = np.zeros(4, np.uint64)  # requests, ticks, nothing, a number from the beginning
counts[3] = 7

@libos.udp(port=9000, state=counts)
def echo(request, reply, counts):
    atomics.atomic_add(counts, 0, 1)
    n = len(request)
    reply[:n] = request
    for i in range(4):
        reply[n + i] = counts[i] & 255
    return n + 4

def kind(request):
    return request[0] & 1

@libos.udp(port=9001, classify=kind, targets_us=(10, 1000))
def total(request, reply):
    parts = np.zeros(len(request), np.uint64)  # from the heap
    for i in range(len(request)):
        parts[i] = request[i]
    if parts[0] == 255:
        raise ValueError("no such request")
    several = [len(request)]
    several.append(np.int64(parts.sum()))
    reply[0] = several[0]
    reply[1] = several[1] & 255
    return 2

@libos.udp(port=9002, state=counts, batch=2, wait_us=2**32 - 1)
def pairs(requests, replies, lengths, counts):
    for i in range(len(requests)):
        n = len(requests[i])
        replies[i][:n] = requests[i]
        replies[i][n] = len(requests)
        lengths[i] = n + 1

@libos.tcp(port=7000)
def lines(data, reply):
    for end in range(len(data)):
        if data[end] == 10:
            for i in range(end):
                reply[i] = data[end - 1 - i]
            reply[end] = 10
            return end + 1, end + 1
    return 0, 0

@libos.every(ms=1, state=counts)
def tick(counts):
    counts[1] += 1

@http.route("/sum", methods=("POST",), state=counts)
def summed(target, body, reply, counts):
    n = 0
    for byte in body:
        n += byte
    reply[0] = 48 + n % 10
    return 200, 1

@http.route("/wrong/*")
def wrong(target, body, reply):
    if len(body) == 0:
        raise ValueError(len(target))
    return 200, 0
"""

JOBS = """
from functools import partial
import numpy as np
from corelane import libos
from corelane.libos.numba import calls

data = np.arange(1000.0).reshape(10, 100)

@libos.batch
def total(a, scale, n):
    calls.sleep_ns(1_000_000)
    out = 0.0
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            out += a[i, k] * scale
    return int(out) + n

@libos.batch
def quotient(a, b):
    return a // b

doubled = partial(total, data, 2.0, n=5)
by_three = partial(quotient, 7, 3)
by_nought = partial(quotient, 7, 0)
"""

LEAVES = """
import numpy as np
from corelane import libos

@libos.udp(port=9000)
def leaves(request, reply):
    if request[0]:
        much = np.ones(1 << 19)
        if much[5] == 1.0:
            raise ValueError(request[0])
    return 1
"""

pytestmark = pytest.mark.skipif(not services.library().exists(), reason="the C core is not built: make build")


Compile = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def compiled() -> Iterator[Compile]:
    """`done = compiled(folder, text, *words)`: a module of that text and `corelane compile WORDS`, by default of it."""
    with contextlib.closing(Warm()) as warm:

        def compile_it(folder: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
            (folder / "shop.py").write_text(text)
            return warm.ask("compile", *(words or ("shop.py",)), cwd=folder)

        yield compile_it


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The service, compiled as a user does it."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SERVICE)
    done = ask("compile", "shop.py", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [(w["name"], w["kind"], w["port"]) for w in told["work"]] == [
        ("echo", "UDP", 9000),
        ("total", "UDP", 9001),
        ("pairs", "UDP", 9002),
        ("lines", "TCP", 7000),
        ("tick", "periodic", None),
        ("summed", "HTTP", 8080),
        ("wrong", "HTTP", 8080),
    ]
    assert "allocates memory" in done.stderr
    return folder / "shop.so"


@pytest.fixture
def iokernel(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "io.sock")
    with Iokernel(path, poll="block"):
        yield path


def receive(socket: Any, data: bytes, to: tuple[str, int]) -> bytes:
    """The answer to a request, which may have to be sent again: ARP has to find the way first."""
    for _ in range(20):
        socket.send(data, to)
        try:
            return bytes(socket.receive(timeout_s=5.0)[0])
        except TimeoutError:
            continue
    raise AssertionError("no answer")


def asked(client: Runtime, address: str, what: str, body: bytes = b"") -> tuple[str, bytes]:
    """Status and body of an answer of HTTP."""
    stream = client.connect_tcp((address, 8080), timeout_s=20.0)
    head = f"{what} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    stream.write(head.encode() + body)
    answer = b""
    while piece := stream.read(timeout_s=20.0):
        answer += piece
    stream.close()
    lines, _, content = answer.partition(b"\r\n\r\n")
    return lines.split()[1].decode(), content


def shown(iokernel: str) -> dict[str, Any]:
    """The counters that an iokernel shows of the service."""
    counters = next(app for app in watch.snapshot(iokernel)["apps"] if app["name"] == "shop")["counters"]
    return counters["values"] if counters else {}


def test_it_serves_without_python(shop: Path, iokernel: str, start: Any) -> None:
    run = start("run", str(shop), "--socket", iokernel, "--json")
    serving = run.event("serving")
    assert (serving["app"], serving["ports"], serving["tcp_ports"]) == ("shop", [9000, 9001, 9002], [7000, 8080])
    pid = serving["pid"]
    assert pid == run.process.pid, "it became the program"
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert "libpython" not in maps
    assert "python" not in os.readlink(f"/proc/{pid}/exe")
    assert "shop.so" in maps
    with Runtime(iokernel, name="client") as client:
        client.start()
        address = serving["address"]
        with client.open_udp() as socket:
            first = receive(socket, b"one", (address, 9000))
            assert (first[:3], first[3], first[6]) == (b"one", 1, 7), "its state begins as it was when it was compiled"
            assert receive(socket, b"two", (address, 9000))[3] > first[3], "and is kept"
            wait_until(lambda: receive(socket, b"", (address, 9000))[1] > 1, 60, "periodic work")
            assert receive(socket, b"\1\2\3", (address, 9001)) == b"\3\6"
            socket.send(b"\xff", (address, 9001))
            for text in (b"two", b"three"):
                socket.send(text, (address, 9002))
            answers = {socket.receive(timeout_s=20.0)[0] for _ in range(2)}
            assert answers == {b"two\2", b"three\2"}, "they waited for each other, as the module says"
        stream = client.connect_tcp((address, 7000), timeout_s=20.0)
        stream.write(b"stressed\n")
        assert stream.read(timeout_s=20.0) == b"desserts\n"
        stream.close()
        assert asked(client, address, "POST /sum", b"\1\2\6") == ("200", b"9")
        assert asked(client, address, "GET /sum")[0] == "405"
        assert asked(client, address, "GET /wrong/way")[0] == "500"
        assert asked(client, address, "GET /nowhere")[0] == "404"
    wait_until(lambda: shown(iokernel).get("requests") == 4, 60, "counters of its HTTP server")
    app = next(a for a in watch.snapshot(iokernel)["apps"] if a["name"] == "shop")
    assert app["pid"] == pid
    anonymous = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "RssAnon" in line)
    assert int(anonymous.split()[1]) < 16 << 10, "KiB: numba's process has ten times as much"
    raised = sorted(run.event("raised")["text"] for _ in range(2))
    source = SERVICE.splitlines()
    wrong, total = (
        source.index(f"        raise ValueError({what})") + 1 for what in ("len(target)", '"no such request"')
    )
    assert raised[0].startswith("HTTP handler wrong raised ValueError: ... (File ")
    assert raised[0].endswith(f'shop.py", line {wrong}, in wrong)')
    assert raised[1].startswith("handler total raised ValueError: no such request (File ")
    assert raised[1].endswith(f'shop.py", line {total}, in total)')
    run.process.send_signal(signal.SIGTERM)
    stopped = run.event("stopped")
    assert stopped["net"]["handler_errors"] == 1, "the exception failed its request alone"
    assert stopped["net"]["handled"] >= 4
    assert (stopped["service"]["ok"], stopped["service"]["handler_errors"]) == (1, 1)
    assert run.process.wait(60) == 0


def test_what_an_exception_leaves_behind_is_given_back(
    iokernel: str, start: Any, tmp_path: Path, compiled: Compile
) -> None:
    """Its values, and the arrays that the handler had made: strangers choose what is asked."""
    done = compiled(tmp_path, LEAVES)
    assert done.returncode == 0, done.stderr
    run = start("run", str(tmp_path / "shop.so"), "--socket", iokernel, "--json")
    serving = run.event("serving")
    with Runtime(iokernel, name="client") as client:
        client.start()
        with client.open_udp() as socket:
            receive(socket, b"\0", (serving["address"], 9000))
            for _ in range(60):
                socket.send(b"\1", (serving["address"], 9000))
                receive(socket, b"\0", (serving["address"], 9000))
    status = Path(f"/proc/{serving['pid']}/status").read_text().splitlines()
    anonymous = next(line for line in status if "RssAnon" in line)
    assert int(anonymous.split()[1]) < 64 << 10, "KiB: a request takes 4 MiB"
    run.process.send_signal(signal.SIGTERM)
    assert run.event("stopped")["net"]["handler_errors"] == 60


@pytest.mark.parametrize(
    ("names", "status", "results"),
    [
        ("doubled,by_three", 0, {"doubled": 999005, "by_three": 2}),
        ("by_nought,by_three", 1, {"by_nought": None, "by_three": 2}),
    ],
)
def test_jobs_end_and_the_service_with_them(
    iokernel: str,
    start: Any,
    tmp_path: Path,
    names: str,
    status: int,
    results: dict[str, int | None],
    compiled: Compile,
) -> None:
    done = compiled(tmp_path, JOBS, f"shop.py:{names}")
    assert done.returncode == 0, done.stderr
    run = start("run", str(tmp_path / "shop.so"), "--socket", iokernel, "--class", "batch", "--json")
    told = [json.loads(line) for line in run.lines(time.monotonic() + 60)]
    assert {event["name"]: event["result"] for event in told if event["event"] == "job"} == results
    assert "stopped" in [event["event"] for event in told]
    assert run.process.wait(60) == status
    raised = [event["text"] for event in told if event["event"] == "raised"]
    assert len(raised) == status
    assert all("job quotient raised ZeroDivisionError: integer division by zero (File " in text for text in raised)


def test_jobs_are_taken_with_their_arguments(tmp_path: Path, compiled: Compile) -> None:
    done = compiled(tmp_path, JOBS, "shop.py", "--json")
    assert done.returncode == 0, done.stderr
    assert [(w["name"], w["kind"]) for w in json.loads(done.stdout)["work"]] == [
        ("doubled", "job"),
        ("by_three", "job"),
        ("by_nought", "job"),
    ]


def test_a_new_version_takes_over(shop: Path, tmp_path: Path, start: Any) -> None:
    """As a member of a group: the one before it drains and ends by itself."""
    path = str(tmp_path / "io.sock")
    with Iokernel(path, poll="block", apps={"shop": AppConfig(members=2)}):
        first = start("run", str(shop), "--socket", path, "--json")
        first.event("serving")
        second = start("run", str(shop), "--socket", path, "--replace", "--json")
        second.event("serving")
        assert "1 other member of shop drains" in second.event("draining")["text"]
        told = second.event("replaced")
        assert (told["members"], told["left"]) == (1, 0)
        assert "another process has taken over the name" in first.event("drain")["text"]
        stopped = first.event("stopped")
        assert stopped["replaced"]
        assert stopped["text"].endswith("; another process has taken over")
        assert first.process.wait(60) == 0
        second.process.send_signal(signal.SIGTERM)
        assert not second.event("stopped")["replaced"]
        assert second.process.wait(60) == 0
        alone = start("run", str(shop), "--socket", path, "--replace", "--name", "other", "--json")
        assert alone.process.wait(60) == 1
        alone.errors.seek(0)
        assert "other is of no group" in alone.errors.read()


@pytest.mark.root
@pytest.mark.parametrize("driver", ["tap", "af_xdp"])
def test_it_is_embedded_on_a_nic(shop: Path, start: Any, netns: Any, driver: str) -> None:
    """Linux is at the other end. Of AF_XDP, Python loads the program and hands it over."""
    ours, linux = "10.79.9.3", "10.79.9.1"
    nic = f"tap:cl0,host={linux}/24"
    if driver == "af_xdp":
        skip_without_af_xdp()
        near, far = netns.link(addresses=(linux, "10.79.9.2"))
        space, asked, nic = far.namespace, near.namespace, f"af_xdp:{far.name}"
    else:
        space = asked = netns.add(driver)
    with space.entered():
        run = start("run", str(shop), "--nic", nic, "--address", f"{ours}/24", "--json")
        serving = run.event("serving")
    assert "libpython" not in Path(f"/proc/{serving['pid']}/maps").read_text()
    with asked.udp_socket((linux, 0), timeout_s=20) as sock:
        sock.sendto(b"\1\2\3", (ours, 9001))
        assert sock.recv(100) == b"\3\6"
    assert run.stop() == 0


def test_it_runs_in_a_process_with_python_as_well(shop: Path) -> None:
    """As `corelane run` has it for NICs that only Python opens."""
    nic, end = memory_link(ipv4=("10.0.0.1", None))
    target = targets.resolve(str(shop), (), port=None, plain=False)
    assert (target.name, target.port) == ("shop", 9000)
    with nic, end, Runtime(nic=nic) as runtime:
        bound = target.setup(runtime)
        assert (bound.ports, bound.stats()) == ((9000, 9001, 9002), {})
        runtime.start()
        with runtime.open_udp() as socket:
            assert receive(socket, b"here", ("127.0.0.1", 9000))[:4] == b"here"


def test_a_generated_load_is_answered(shop: Path, tmp_path: Path, compiled: Compile) -> None:
    only = compiled(tmp_path, SERVICE, "shop.py:total", "--output", "total.so", "--name", "sums")
    assert only.returncode == 0, only.stderr
    words = ["--nic", "loadgen:echo,rate=500,seconds=0.2", "--port", "9005", "--json"]
    done = ask("run", "./total.so", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    events = {e["event"]: e for e in map(json.loads, done.stdout.splitlines())}
    assert (events["serving"]["app"], events["serving"]["ports"]) == ("sums", [9005])
    assert events["stopped"]["net"]["handled"] > 0
    refused = ask("run", str(shop), *words, cwd=tmp_path)
    assert refused.returncode == 2
    assert "it has 5 handlers, and --port gives one port" in refused.stderr


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        ("print(request[0])\n    return 0", r"it needs the interpreter, as print\(\) does"),
        ("return int(np.dot(np.ones(3), np.ones(3)))", r"it needs BLAS or LAPACK \(np.dot, np.linalg\)"),
        ("return int(np.random.random())", "it needs np.random"),
        ("d = {1: len(request)}\n    return d[1]", "it needs a dict"),
    ],
)
def test_what_needs_python_is_refused_at_the_users_line(
    body: str, finding: str, tmp_path: Path, compiled: Compile
) -> None:
    text = "import numpy as np\nfrom corelane import libos\n@libos.udp(port=1)\ndef one(request, reply):\n"
    done = compiled(tmp_path, f"{text}    if len(request) == 0:\n        return 1\n    {body}\n")
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("corelane compile")]
    assert re.search(finding, line), line
    assert f"{tmp_path}/shop.py, line 7)" in line
    assert not (tmp_path / "shop.so").exists()


@pytest.mark.parametrize(
    ("text", "words", "status", "finding"),
    [
        ("", ("absent.py",), 1, "there is no such file"),
        ("", ("shop.py",), 1, "it has no handler and no periodic work"),
        ("import os", ("shop.py:os",), 1, "it is a module"),
        ("x = 1", ("shop.py:y",), 1, "it has no 'y'"),
        ("1 / 0", ("shop.py",), 1, "ZeroDivisionError"),
        ("def f(request, reply): return 0", ("shop.py:f",), 1, "it names no UDP port"),
        ("@libos.udp(port=1, compiled=False)\ndef f(request): return None", ("shop.py",), 1, "plain Python"),
        ("@libos.udp(port=1)\ndef f(request, reply): return 'x'", ("shop.py",), 1, "it returns"),
        (
            "@libos.udp(port=1, state=(1, 2))\ndef f(request, reply, s): return 0",
            ("shop.py",),
            1,
            "its state is a tuple",
        ),
        (
            "@libos.udp(port=1)\ndef f(request, reply): return 0\n" * 1
            + "@libos.udp(port=1)\ndef g(request, reply): return 0",
            ("shop.py",),
            1,
            "f serves port 1, too",
        ),
        ("", ("shop.py", "--cpu", "z80"), 2, "there is no such level"),
        ("@libos.batch\ndef f(a): return a", ("shop.py:f",), 1, "missing a required argument: 'a'"),
        (
            "from functools import partial\n@libos.batch\ndef f(a): return a\ng = partial(f, 'x')",
            ("shop.py",),
            1,
            "it is given a str, which lies in this process's memory",
        ),
        (
            "from corelane.apps.http.handlers import route\n@route('/', compiled=False)\ndef f(request): return 'x'",
            ("shop.py",),
            1,
            "plain Python",
        ),
        (
            "from corelane.apps.http.handlers import route\n@route('/')\ndef f(target, body, reply): return 200, 0\n"
            "@libos.tcp(port=8080)\ndef g(data, reply): return 0, 0",
            ("shop.py",),
            1,
            "f serves port 8080, too",
        ),
    ],
)
def test_wrong_services_are_refused_with_the_way_out(
    text: str, words: tuple[str, ...], status: int, finding: str, tmp_path: Path, compiled: Compile
) -> None:
    done = compiled(tmp_path, f"from corelane import libos\n{text}\n", *words)
    assert done.returncode == status
    assert finding in done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def table_at(path: Path) -> int:
    """Where the table lies in the file."""
    with path.open("rb") as file:
        elf: Any = ELFFile(file)
        (symbol,) = elf.get_section_by_name(".dynsym").get_symbol_by_name("corelane_service")
        section = elf.get_section(symbol["st_shndx"])
        return int(section["sh_offset"] + symbol["st_value"] - section["sh_addr"])


def changed(shop: Path, folder: Path, offset: int, raw: bytes) -> Path:
    """A copy with other bytes in its table."""
    content = bytearray(shop.read_bytes())
    at = table_at(shop) + offset
    content[at : at + len(raw)] = raw
    (folder / "other.so").write_bytes(content)
    return folder / "other.so"


@pytest.mark.parametrize(
    ("offset", "raw", "finding"),
    [
        (0, b"nonsense", "is not what corelane compile makes"),
        (8, struct.pack("=I", 99), "it is of service ABI 99, and this corelane has 3: install a newer corelane"),
        (12, struct.pack("=I", 0), "it does 0 things"),
        (16, b"\0" * 8, "whose structs are laid out differently: compile it again"),
    ],
)
def test_one_for_another_corelane_is_not_loaded(
    shop: Path, tmp_path: Path, offset: int, raw: bytes, finding: str
) -> None:
    program = library().with_name("corelane-run")
    path = changed(shop, tmp_path, offset, raw)
    done = subprocess.run([program, "--check", path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert finding in done.stderr
    with pytest.raises(CorelaneError, match=finding):
        targets.resolve(str(path), (), port=None, plain=False)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the levels are those of x86-64")
def test_code_is_of_the_level_that_was_asked_for(shop: Path, tmp_path: Path) -> None:
    """The least has no AVX; a level that does not exist here is refused when it is loaded."""
    listing = subprocess.run(["objdump", "-d", str(shop)], capture_output=True, text=True, check=True).stdout
    assert "%ymm" not in listing
    assert b"x86-64-v2\0" in shop.read_bytes()
    content = shop.read_bytes().replace(b"x86-64-v2\0", b"x86-64-v9\0")
    (tmp_path / "other.so").write_bytes(content)
    with pytest.raises(CorelaneError, match="processors of x86-64-v9, which this corelane does not know"):
        targets.resolve(str(tmp_path / "other.so"), (), port=None, plain=False)


@pytest.mark.parametrize(
    ("words", "status", "finding"),
    [
        ((), 2, "name the service"),
        (("--port", "0", "x.so"), 2, "this value is none for its option: --port"),
        (("--nonsense", "x.so"), 2, "there is no such option"),
        (("--nic", "tap:x", "x.so"), 2, "--address A.B.C.D/N"),
        (("--nic", "af_xdp:x", "--address", "10.0.0.1/24", "x.so"), 2, "start it by `corelane run`"),
        (("--socket", "s", "--nic", "tap:x", "x.so"), 2, "not both"),
        (("a.so", "b.so"), 2, "a word too many: b.so"),
        (("./absent.so",), 1, "No such file"),
        ((str(library()),), 1, "it exports no corelane_service"),
    ],
)
def test_the_launcher_says_what_is_wrong(words: tuple[str, ...], status: int, finding: str) -> None:
    program = library().with_name("corelane-run")
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, finding in done.stderr) == (status, True), done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_launcher_gives_up_on_an_iokernel_that_does_not_come(shop: Path, tmp_path: Path) -> None:
    program = library().with_name("corelane-run")
    words = [program, "--socket", str(tmp_path / "none.sock"), "--wait", "0", "--json", shop]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["why"]
