"""up, run and ps as a user starts them: processes of their own on a socket of the test's own, ended by their pids."""

import contextlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cltest import die_with_parent, wait_until
from cltest.switching import udp_frame

from corelane.cli import config, watch
from corelane.drivers.nic.nic import ipv4_to_int, mac_to_bytes
from corelane.drivers.port.port import open_port
from corelane.iokernel import Iokernel

from .test_streams import commands

DEADLINE_S = 60.0

SHOUT = """
from corelane import libos

@libos.udp(port=9000)
def compiled(request, reply):
    for i in range(len(request)):
        reply[i] = request[i]
    return len(request)

def plain(request, reply):
    reply[: len(request)] = request
    return len(request)
"""

STUCK = """
import pathlib

def for_ever(request):
    pathlib.Path("entered").touch()
    while True:
        pass
"""

C_ECHO = """
#include <corelane/libos/handler.h>
#include <stdlib.h>
#include <string.h>
static int64_t extra;
int begin(struct cl_runtime *rt, const char *const *options, void **arg, char *err)
{
    (void)rt;
    for (; *options; options++)
        if (!strncmp(*options, "fail=", 5)) { strcpy(err, "asked to fail"); return -22; }
    extra = 1;
    *arg = &extra;
    return 0;
}
CL_SETUP(begin);
int64_t serve(const uint8_t *q, int64_t n, uint8_t *r, int64_t room, void *arg)
{
    if (n > room || *(int64_t *)arg != 1) return CL_HANDLER_ERROR;
    memcpy(r, q, (size_t)n);
    return n;
}
CL_HANDLER(serve, 9000);
"""


# Another user, who may read what root installed this Python in.
AS_NOBODY = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"),
)
# With a /dev/net/tun that everybody may open, as most systems have it; before another prefix.
WITH_TUN = (
    *("unshare", "--mount", "sh", "-ec"),
    'mknod -m 666 "$1" c 10 200; chmod 666 "$1"; mount --bind "$1" /dev/net/tun; shift; exec "$@"',
    "sh",
)


class Command:
    """`corelane ARGS` in a process; `event` waits for a JSON line with that event. prefix: words before the command."""

    def __init__(self, args: Sequence[str], cwd: Path, prefix: Sequence[str] = ()) -> None:
        self.errors = (cwd / f"stderr-{time.monotonic_ns()}").open("w+")
        self.read = b""
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "corelane.cli.main", *args],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            preexec_fn=die_with_parent,
        )

    def event(self, name: str) -> dict[str, Any]:
        deadline = time.monotonic() + DEADLINE_S
        for line in self.lines(deadline):
            told: dict[str, Any] = json.loads(line)
            if told["event"] == name:
                return told
        self.errors.seek(0)
        raise AssertionError(f"no event {name}: {self.errors.read()}")

    def lines(self, deadline: float) -> Iterator[bytes]:
        """Lines as they come, until the deadline or the end. Several may come at once: `read` has those left over."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while True:
                line, newline, rest = self.read.partition(b"\n")
                if newline:
                    self.read = rest
                    yield line
                    continue
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    return
                if not (data := os.read(self.process.stdout.fileno(), 65536)):
                    return
                self.read += data

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()
        return code


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """`start("run", "echo", ...)` returns a Command; all are ended after the test."""
    started: list[Command] = []

    def begin(*args: str, prefix: Sequence[str] = ()) -> Command:
        started.append(Command(args, tmp_path, prefix))
        return started[-1]

    yield begin
    for command in reversed(started):
        if command.process.poll() is None:
            command.process.kill()
        command.process.wait(20)
        if command.process.stdout is not None:
            command.process.stdout.close()
        command.errors.close()


def ask(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "corelane.cli.main", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


def test_up_run_ps(start: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "io.sock")
    # The application is started first: it waits for the iokernel, as `corelane up & corelane run` needs.
    run = start("run", "echo", "--socket", path, "--wait", "30", "--json")
    up = start("up", "--socket", path, "--json")
    begun = up.event("iokernel")
    assert (begun["socket"], begun["pid"], begun["uplink"]) == (path, up.process.pid, None)
    assert len(begun["cpus"]) == 1
    serving = run.event("serving")
    assert (serving["app"], serving["attached"], serving["pid"]) == ("echo", True, run.process.pid)
    assert (serving["port"], serving["ports"]) == (9000, [9000])

    shown = ask("ps", "--socket", path, "--interval", "0.05")
    assert shown.returncode == 0, shown.stderr
    assert "echo" in shown.stdout
    assert serving["address"] in shown.stdout
    stats = json.loads(ask("ps", "--socket", path, "--interval", "0.05", "--json").stdout)
    assert [a["name"] for a in stats["apps"]] == ["echo"]
    assert stats["apps"][0]["pid"] == run.process.pid
    assert "rates" in stats["apps"][0]
    wait_until(lambda: "echo" in ask("metrics", "--socket", path).stdout)
    wait_until(lambda: watch.snapshot(path)["apps"][0]["counters"])
    assert {k: serving[k] for k in ("address", "mac", "cpus")} == {
        "address": stats["apps"][0]["ipv4"],
        "mac": stats["apps"][0]["mac"],
        "cpus": stats["apps"][0]["cpus"],
    }

    shown = ask("top", "--socket", path, "-d", "0.05", "--once")
    assert shown.returncode == 0, shown.stderr
    assert "echo" in shown.stdout
    top = [
        json.loads(line) for line in ask("top", "--socket", path, "-d", "0.05", "-n", "2", "--json").stdout.splitlines()
    ]
    assert [[a["name"] for a in stats["apps"]] for stats in top] == [["echo"], ["echo"]]

    second = ask("up", "--socket", path)
    assert second.returncode == 1
    assert f"pid {up.process.pid}" in second.stderr
    twin = ask("run", "echo", "--socket", path)
    assert twin.returncode == 1
    assert f"the name echo is taken: process {run.process.pid} is attached under it" in twin.stderr
    assert "corelane run --name NAME, Runtime(..., name=NAME)" in twin.stderr
    assert "[" not in twin.stderr, "the sentence has said it all"

    assert run.stop() == 0
    assert up.stop() == 0
    gone = ask("ps", "--socket", path)
    assert gone.returncode == 1
    assert "corelane up" in gone.stderr


def assert_traced(path: str, out: Path) -> None:
    """Moves between the two are recorded, in a summary and in a file that says the same; an ask is among them soon."""
    for _ in range(8):
        shown = ask("trace", "--socket", path, "--seconds", "0.3", "--out", str(out), "--json")
        assert shown.returncode == 0, shown.stdout
        document = json.loads(shown.stdout)
        assert (document["out"], document["policy"]) == (str(out), "delay")
        assert document["seconds"] > 0.2
        assert document["moves"] == sum(step["moves"] for step in document["steps"].values())
        events = json.loads(out.read_text())["traceEvents"]
        assert all(e["ts"] <= 1e6 * document["seconds"] for e in events if e["ph"] != "M")  # none from before
        assert sum(e["ph"] == "X" and e["pid"] == 2 for e in events) == document["moves"]
        assert {e["name"] for e in events if e["ph"] == "X" and e["pid"] == 1} <= {"echo.0", "batch.0"}
        if any(e["name"] == "ask: batch.0 to echo.0" for e in events):
            break
    else:
        pytest.fail(f"no ask was seen: {document}")
    owners = document["cores"][0]["owners"]
    assert set(owners) == {"echo.0", "batch.0"}
    assert 0 < sum(owners.values()) <= 1
    nowhere = ask("trace", "--socket", path, "--out", str(out.parent / "none" / "x.json"))
    assert nowhere.returncode == 1
    assert "give --out a file that can be written" in nowhere.stderr


@contextlib.contextmanager
def two_cpus() -> Iterator[None]:
    """What is started in the block may run on two of our CPUs alone."""
    ours = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(ours)[-2:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, ours)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: none is left to be managed")
def test_a_server_and_batch_work_share_a_core(start: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "io.sock")
    with two_cpus():
        held = ("--set", "apps.echo.guaranteed_cores=1")
        up = start("up", "--socket", path, "--nic", "loadgen:echo,rate=2e3,seconds=100", *held, "--json")
    begun = up.event("iokernel")
    assert (begun["policy"], len(begun["worker_cpus"])) == ("delay", 1)  # or nobody had to give way
    job = start("run", "batch", "--socket", path, "--option", "size=32", "--every", "0.1", "--json")
    assert job.event("serving")["ports"] == []
    assert job.event("work")["kernel"] == "matmul"
    run = start("run", "echo", "--socket", path, "--weight", "7", "--deadline-us", "100", "--json")
    assert "it has weight 1 instead of 7: to allow more" in run.event("limited")["text"]
    run.event("serving")

    def answered_asks() -> int:
        """Moves that the job's probes answered, before any signal."""
        return sum(a["actuation"]["ask"]["n"] for a in watch.snapshot(path)["cores"]["allocators"])

    wait_until(lambda: answered_asks() > 0, 20, lambda: f"an ask to be answered: {watch.snapshot(path)['cores']}")
    top = ask("top", "--socket", path, "-d", "0.2", "--once", "--json")
    apps = {a["name"]: a["cores"] for a in json.loads(top.stdout)["apps"]}
    assert {name: (c["class"], c["guaranteed"], c["deadline_us"]) for name, c in apps.items()} == {
        "batch": ("batch", 0, 0),
        "echo": ("latency", 1, 100),
    }
    assert apps["batch"]["moves_in"] > 0
    assert_traced(path, tmp_path / "trace.json")
    for times in (apps["echo"]["detection"], apps["echo"]["actuation"], apps["batch"]["actuation"]):
        assert times["n"] == sum(n for _, _, n in times["buckets_ns"]) > 0
        lows = [low for low, _, _ in times["buckets_ns"]]
        assert lows == sorted(set(lows))
        assert lows[0] <= 1000 * times["p50_us"] <= 1000 * times["p99_us"]
    wait_until(lambda: watch.snapshot(path)["uplinks"][0]["rx_frames"] > 1000)
    up.process.send_signal(signal.SIGTERM)
    run.event("gone")
    assert job.event("gone")["text"]
    assert run.stop() == 0
    assert job.stop() == 0
    assert up.process.wait(20) == 0


POLICY = """
def spare(view, apps, cores=1):
    for i in range(view.n_apps):
        apps[i].grant = min(apps[i].cores - apps[i].idle + cores, apps[i].maximum)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: none is left to be managed")
def test_another_policy_while_it_runs(start: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "io.sock")
    (tmp_path / "mine.py").write_text(POLICY)
    (tmp_path / "broken.py").write_text("def f(view, apps:\n")
    up = start("up", "--socket", path, "--policy", "delay", "--set", "policy.target_us=20", "--json")
    begun = up.event("iokernel")
    assert begun["policy"] == "delay"
    assert len(begun["worker_cpus"]) >= 1
    told = ask("policy", "--socket", path)
    assert told.stdout.startswith("policy delay target_us=20 calm=1, worker core")

    for words, name, settings in (
        (("fair", "--set", "slice_us=20"), "fair", {"slice_us": 20, "credit_us": 10_000}),
        (("mine:spare", "--set", "cores=2"), "mine:spare", {"cores": 2}),
    ):
        told = ask("policy", *words, "--socket", path, "--json")
        assert told.returncode == 0, told.stderr
        assert json.loads(told.stdout) == {"name": name, "params": settings, "ejected": None}
    assert "policy mine:spare cores=2, worker core" in ask("ps", "--socket", path, "--interval", "0").stdout

    wrong = (
        (["nonsense"], "there is none of that name"),
        (["fair", "--set", "slice=1"], "this policy has no such setting"),
        (["fair", "--set", "slice_us"], "name=number"),
        (["./none.so:f"], str(tmp_path / "none.so")),
        (["broken:f"], "cannot import broken: SyntaxError"),
        (["x" * 300], "239"),
    )
    answers = commands([{"args": ["policy", *w, "--socket", path], "cwd": str(tmp_path)} for w, _ in wrong])
    for (words, said), answer in zip(wrong, answers, strict=True):
        assert answer["code"] == 1, words
        assert said in answer["err"], words
        assert len(answer["err"].strip().splitlines()) == 1, words
    assert json.loads(ask("policy", "--socket", path, "--json").stdout)["name"] == "mine:spare"
    assert up.stop() == 0
    told = ask("up", "--socket", path, "--policy", "broken:f", cwd=tmp_path)
    assert told.returncode == 1
    assert "cannot import broken: SyntaxError" in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1


def test_an_application_outlives_its_iokernel(start: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "io.sock")
    first = start("up", "--socket", path, "--json")
    run = start("run", "echo", "--socket", path, "--wait", "30", "--json")
    run.event("serving")
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait(20)
    assert path in run.event("gone")["text"]
    second = start("up", "--socket", path, "--json")
    run.event("attached")
    names: list[str] = []
    deadline = time.monotonic() + DEADLINE_S
    while names != ["echo"] and time.monotonic() < deadline:
        got = ask("ps", "--socket", path, "--interval", "0", "--json")
        names = [a["name"] for a in json.loads(got.stdout)["apps"]] if got.returncode == 0 else []
    assert names == ["echo"]
    assert run.stop() == 0
    assert second.stop() == 0


@pytest.mark.parametrize(
    "target",
    [["echo"], ["shout:compiled"], ["shout:plain", "--plain", "--port", "9000"], ["./serve.so"]],
    ids=["built-in", "numba", "python", "compiled"],
)
def test_every_kind_of_target_serves_a_generated_load(tmp_path: Path, target: list[str]) -> None:
    """Embedded, without root and without an iokernel: the load generator is the NIC."""
    (tmp_path / "shout.py").write_text(SHOUT)
    if target == ["./serve.so"]:
        build_c(tmp_path)
    nic = "loadgen:echo,rate=2e3,seconds=0.5"
    command = [sys.executable, "-m", "corelane.cli.main", "run", *target, "--nic", nic, "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    events = {e["event"]: e for e in map(json.loads, done.stdout.splitlines())}
    assert events["load"]["sent"] > 500
    assert events["load"]["answered"] == events["load"]["sent"]
    assert events["stopped"]["net"]["handler_errors"] == 0


def test_an_iokernel_loads_its_application(start: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "io.sock")
    # Longer than a machine is away: a loop that gets no CPU until all that was due is long overdue sends none of it.
    up = start("up", "--socket", path, "--nic", "loadgen:echo,rate=2e3,seconds=3", "--json")
    run = start("run", "echo", "--socket", path, "--wait", "30", "--json")
    run.event("serving")
    load = up.event("load")
    # How many are answered in time is the machine's affair; that answers come and each request is accounted for, ours.
    assert load["sent"] > 400
    assert 0 < load["answered"] <= load["sent"]
    assert up.process.wait(20) == 0
    run.event("gone")
    run.process.send_signal(signal.SIGTERM)
    net = run.event("stopped")["net"]
    assert load["answered"] <= net["replied"] <= net["handled"]
    assert run.process.wait(20) == 0


@pytest.mark.parametrize("nic", ["none", "loadgen:echo"])
def test_an_iokernel_gives_out_the_areas_of_its_configuration(start: Any, tmp_path: Path, nic: str) -> None:
    path = str(tmp_path / "io.sock")
    (tmp_path / "up.toml").write_text('[storage]\ndirectory = "areas"\n')
    start("up", "--config", "up.toml", "--socket", path, "--nic", nic, "--json").event("iokernel")
    made = ask("areas", "create", "log", "1M", "--socket", path)
    assert made.returncode == 0, made.stderr
    assert [file.name for file in (tmp_path / "areas").iterdir()] == [f"log@{os.geteuid()}.area"]


def build_c(folder: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc: apt-get install gcc libc6-dev")
    (folder / "serve.c").write_text(C_ECHO)
    flags = ["-O1", "-shared", "-fPIC", f"-I{config.folders()[0]}", "-D_GNU_SOURCE"]
    subprocess.run(["gcc", *flags, "serve.c", "-o", "serve.so"], cwd=folder, check=True)


@pytest.mark.root
def test_every_program_of_the_machine_talks_through_a_tap(start: Any, netns: Any, tmp_path: Path) -> None:
    """README: `corelane up --nic tap:cl0`. Linux has an address on it, and answers ARP as the iokernel does."""
    space = netns.add("tap")
    path, record = str(tmp_path / "io.sock"), tmp_path / "up.pcap"
    with space.entered():  # the process inherits the namespace
        up = start("up", "--socket", path, "--nic", f"tap:cl0,record={record}", "--json")
    run = start("run", "echo", "--socket", path, "--wait", "30", "--json")
    up.event("iokernel")
    address = run.event("serving")["address"].partition("/")[0]
    assert "10.77.0.1/16" in space.ip("-br", "address", "show", "cl0")
    with space.udp_socket(("0.0.0.0", 0), timeout_s=20) as sock:
        for size in (1, 100, 1472):
            payload = os.urandom(size)
            sock.sendto(payload, (address, 9000))
            assert sock.recvfrom(2048) == (payload, (address, 9000))
    if shutil.which("ping"):
        # Until three are answered: after a first answer -W waits for twice as long as that took, and no longer.
        done = space.run(["ping", "-c", "3", "-i", "0.05", "-w", "30", address])
        assert done.returncode == 0, done.stdout
        assert " 3 received" in done.stdout
    assert run.stop() == 0
    assert up.stop() == 0
    assert record.stat().st_size > 24 + 3 * 2 * 16 + 2 * (1 + 100 + 1472)


@pytest.mark.root
@pytest.mark.parametrize("driver", ["tap", "af_xdp"])
def test_an_idle_iokernel_tells_when_its_uplink_vanishes(start: Any, netns: Any, tmp_path: Path, driver: str) -> None:
    space = netns.add(driver)
    path = str(tmp_path / "io.sock")
    if driver == "af_xdp":
        space.ip("link", "add", "cl0", "type", "veth", "peer", "name", "cl1")
        space.ip("link", "set", "cl0", "up")
    with space.entered():  # the process inherits the namespace
        up = start("up", "--socket", path, "--nic", f"{driver}:cl0", "--json")
    up.event("iokernel")
    space.ip("link", "delete", "cl0")
    assert "its device was removed" in up.event("gone")["text"]
    shown = ask("ps", "--socket", path, "--interval", "0.01", "--json")
    assert json.loads(shown.stdout)["uplinks"][0]["gone"] is True
    assert up.stop() == 0


def test_a_bad_wire_and_a_recording_in_embedded_mode(tmp_path: Path) -> None:
    record = tmp_path / "x.pcap"
    done = ask("run", "echo", "--nic", f"loadgen:echo,rate=2e3,seconds=0.5,loss=0.5,seed=3,record={record}", "--json")
    assert done.returncode == 0, done.stderr
    events = {e["event"]: e for e in map(json.loads, done.stdout.splitlines())}
    load, recording = events["load"], events["recording"]
    assert recording["recorded"] == recording["written"] > load["answered"] * 2
    assert (recording["failed_errno"], recording["file_bytes"]) == (0, record.stat().st_size)
    assert load["sent"] > 500
    assert 0 < load["answered"] < load["sent"] / 2, "a quarter comes through both directions"
    assert record.stat().st_size > load["answered"] * 2 * 60


def test_a_recording_that_stops_is_told(tmp_path: Path) -> None:
    done = ask("run", "echo", "--nic", "loadgen:echo,rate=2e3,seconds=0.1,record=/dev/full")
    assert done.returncode == 0, done.stderr
    assert "the recording stopped: No space left on device" in done.stderr


def test_answers_to_nothing_that_was_asked_are_told(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("def other(request):\n    return b'something else'\n")
    command = [sys.executable, "-m", "corelane.cli.main", "run", "other:other", "--plain", "--port", "9000"]
    command += ["--nic", "loadgen:echo,rate=1e3,seconds=0.2", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    load = next(e for e in map(json.loads, done.stdout.splitlines()) if e["event"] == "load")
    assert load["answered"] == 0
    assert load["strays"] + load["wrong"] + load["errors"] > 0
    assert "answer nothing that was asked" in load["text"]


def test_requests_that_fail_in_the_handler_are_told(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def bad(request):\n    raise LookupError('no')\n")
    command = [sys.executable, "-m", "corelane.cli.main", "run", "bad:bad", "--plain", "--port", "9000"]
    command += ["--nic", "loadgen:echo,rate=1e3,seconds=0.1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert re.search(r"replied to 0, failed [1-9]\d* in the handler, dropped none", done.stderr), done.stderr


@pytest.mark.root
def test_sums_that_a_sender_leaves_to_its_device_are_explained(start: Any, netns: Any, tmp_path: Path) -> None:
    """A veth whose offloads are on, as a user makes it: AF_XDP sees the datagram before the sum is filled in."""
    space = netns.add("xdp")
    space.ip("link", "add", "cl0", "type", "veth", "peer", "name", "cl1")
    for name in ("cl0", "cl1"):
        space.ip("link", "set", name, "up")
    space.ip("address", "add", "10.79.9.1/24", "dev", "cl1")
    with space.entered():
        run = start("run", "echo", "--nic", "af_xdp:cl0", "--address", "10.79.9.2/24", "--json")
    mac = run.event("serving")["mac"]
    space.ip("neigh", "replace", "10.79.9.2", "lladdr", mac, "dev", "cl1", "nud", "permanent")
    with space.udp_socket(("10.79.9.1", 0), timeout_s=0.2) as sock:
        sock.sendto(b"?" * 30, ("10.79.9.2", 9000))
        try:
            sock.recv(100)
        except TimeoutError:
            filled_in = False
        else:
            filled_in = True
    if not filled_in:
        assert "run `ethtool -K IF tx off`" in run.event("unfinished")["text"], "while it runs"
    run.process.send_signal(signal.SIGTERM)
    told = run.event("stopped")
    if filled_in:
        pytest.skip("this kernel fills the sums in on a veth")
    assert told["dropped"]["udp_checksum"] == 1
    assert "ethtool -K ITS_INTERFACE tx off" in told["text"]


@pytest.mark.root
def test_an_iokernel_explains_sums_that_a_sender_leaves_to_its_device(start: Any, netns: Any, tmp_path: Path) -> None:
    space = netns.add("xdp")
    space.ip("link", "add", "cl0", "type", "veth", "peer", "name", "cl1")
    for name in ("cl0", "cl1"):
        space.ip("link", "set", name, "up")
    space.ip("address", "add", "10.79.9.1/24", "dev", "cl1")
    path = str(tmp_path / "io.sock")
    words = ("--set", "network.subnet=10.79.9.0/24", "--set", "apps.echo.ip=10.79.9.2", "--poll", "block", "--json")
    with space.entered():
        up = start("up", "--socket", path, "--nic", "af_xdp:cl0", *words)
        up.event("iokernel")
    run = start("run", "echo", "--socket", path, "--wait", "30", "--json")
    mac = run.event("serving")["mac"]
    space.ip("neigh", "replace", "10.79.9.2", "lladdr", mac, "dev", "cl1", "nud", "permanent")
    with space.udp_socket(("10.79.9.1", 0), timeout_s=0.2) as sock:
        sock.sendto(b"?" * 30, ("10.79.9.2", 9000))
        with contextlib.suppress(TimeoutError):
            sock.recv(100)
            pytest.skip("this kernel fills the sums in on a veth")
    assert "run `ethtool -K IF tx off`" in run.event("unfinished")["text"]
    assert "echo drop frames" in (text := up.event("unfinished")["text"])
    assert "`ethtool -K cl1 tx off`" in text or "the other end of cl0" in text


@pytest.mark.root
@pytest.mark.parametrize("prepared", [True, False])
def test_a_tap_that_was_made_for_a_user_needs_no_root(prepared: bool, start: Any, netns: Any) -> None:
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv: apt-get install util-linux")
    space = netns.add("tap")
    space.ip("tuntap", "add", "dev", "cl0", "mode", "tap", "user", "65534")
    by_root = [["address", "replace", "10.77.0.1/16", "dev", "cl0"], ["link", "set", "cl0", "up", "mtu", "1500"]]
    for words in by_root if prepared else ():
        space.ip(*words)
    with tempfile.TemporaryDirectory(prefix="corelane-") as folder:
        os.chown(folder, 65534, 65534)
        path = f"{folder}/io.sock"
        words = ("--socket", path, "--nic", "tap:cl0", "--set", "apps.echo.ip=10.77.0.9", "--json")
        with space.entered():
            up = start("up", *words, prefix=(*WITH_TUN, f"{folder}/tun", *AS_NOBODY))
            if not prepared:
                commands = " && ".join(f"ip {' '.join(command)}" for command in by_root)
                assert f"as root run `{commands}`" in up.event("tap")["text"]
                for command in by_root:
                    space.ip(*command)
            up.event("iokernel")
        start("run", "echo", "--socket", path, "--wait", "30", "--json", prefix=AS_NOBODY).event("serving")
        with space.udp_socket(("10.77.0.1", 0), timeout_s=20) as sock:
            sock.sendto(b"without root", ("10.77.0.9", 9000))
            assert sock.recv(100) == b"without root"
        assert up.stop() == 0


@pytest.mark.parametrize("nic", ["socket", "loadgen:echo,rate=100,seconds=600"])
def test_an_application_ends_promptly_when_asked(start: Any, tmp_path: Path, nic: str) -> None:
    path = str(tmp_path / "io.sock")
    if nic == "socket":
        up = start("up", "--socket", path, "--json")
        run = start("run", "echo", "--socket", path, "--wait", "30", "--json")
        run.event("serving")
        os.kill(up.process.pid, signal.SIGKILL)  # it tries to attach again from now on
        run.event("gone")
    else:
        run = start("run", "echo", "--nic", nic, "--json")
        run.event("serving")
    run.process.send_signal(signal.SIGTERM)
    assert run.process.wait(20) in (0, -signal.SIGTERM)


def test_a_handler_that_never_comes_back_is_named_when_asked_to_end(start: Any, tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(STUCK)
    path = str(tmp_path / "io.sock")
    with Iokernel(path), open_port(path, name="client") as client:
        words = ("--plain", "--port", "9000", "--stop-s", "0.3", "--socket", path, "--json")
        run = start("run", "stuck:for_ever", *words)
        server = run.event("serving")
        ends = [(mac_to_bytes(mac), ipv4_to_int(ipv4)) for mac, ipv4 in (
            (client.mac, client.ipv4), (server["mac"], server["address"]))]  # fmt: skip
        assert client.send(udp_frame(ends[0], ends[1], b"x")) == 1
        wait_until((tmp_path / "entered").exists, 20, "the request to be taken")
        run.process.send_signal(signal.SIGTERM)
        assert "in the handler of UDP port 9000, for_ever" in run.event("stuck")["text"]
        assert run.process.wait(60) == 1


def test_setup_of_a_compiled_application_may_refuse(tmp_path: Path) -> None:
    build_c(tmp_path)
    target = str(tmp_path / "serve.so")
    done = ask("run", target, "--nic", "loadgen:echo,rate=1e3,seconds=0.2", "--option", "fail=1")
    assert done.returncode == 1
    assert "asked to fail" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_errors_are_one_sentence(tmp_path: Path) -> None:
    wrong = (
        (["up", "--set", "iokernel.pol=spin"], "did you mean 'poll'"),
        (["up", "--nic", "quantum:q0"], "--nic af_xdp:q0"),
        (["up", "--config", "/nonexistent.toml"], "/nonexistent.toml"),
        (["up", "--cores", "4000", "--socket", "SOCK"], "CPU 4000"),
        (["run", "echo", "--socket", "SOCK", "--wait", "0"], "corelane up"),
        (["run", "echo", "--nic", "loadgen:quic"], "loadgen:echo"),
        (["run", "echo", "--nic", "loadgen:echo,speed=1"], "no option 'speed'"),
        (["run", "echo", "--nic", "af_xdp:lo"], "--address"),
        (["run", "echo", "--nic", "loadgen:echo", "--spin-us", "-1"], "from 0 to 1000000"),
        (["run", "echo", "--nic", "loadgen:echo", "--spin-us", "nan"], "from 0 to 1000000"),
        (["run", "echo", "--nic", "loadgen:echo", "--seconds", "-1"], "from 0 to a day"),
        (["run", "echo", "--kthreads", "0"], "whole number from 1 to 64"),
        (["ps", "--socket", "SOCK"], "corelane up"),
        (["top", "--socket", "SOCK"], "corelane up"),
        (["top", "--socket", "SOCK", "-n", "0"], "whole number from 1 on"),
        (["trace", "--socket", "SOCK"], "corelane up"),
        (["trace", "--socket", "SOCK", "--seconds", "-1"], "from 0 to a day"),
        (["policy", "--socket", "SOCK"], "corelane up"),
        (["policy", "fair", "--socket", "SOCK"], "corelane up"),
        (["policy", "--set", "target_us=1", "--socket", "SOCK"], "name it: corelane policy"),
        (["ps", "--interval", "-1"], "from 0 to a day"),
    )
    none = str(tmp_path / "none.sock")
    answers = commands([{"args": [none if a == "SOCK" else a for a in args]} for args, _ in wrong])
    for (args, finding), answer in zip(wrong, answers, strict=True):
        assert answer["code"] in (1, 2), args
        assert finding in answer["err"], args
        assert len(answer["err"].strip().splitlines()) == 1, args


def test_sample_configuration_is_a_configuration(tmp_path: Path) -> None:
    sample = ask("up", "--sample")
    assert sample.returncode == 0
    from corelane.runtime.config import loads

    assert loads(sample.stdout).iokernel.poll == "adaptive"
