"""The wiring of benchmarks: servers under load, in this process and in others."""

import os
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from cltest import answered

from corelane.apps import echo
from corelane.bench.harness import rig, usage
from corelane.drivers.nic.loadgen.loadgen import Echo, Loadgen, Phase
from corelane.libos import Runtime

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="needs two cores that this process may use: taskset -pc 0-1 $$"
)


@pytest.fixture
def cores() -> tuple[int, int]:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    return first, second


def test_embedded_server_answers_every_request(cores: tuple[int, int]) -> None:
    with rig.embedded(lambda rt: rt.bind(echo.handler("c", 9000)), cores) as made:
        for _ in range(5):  # a machine that is busy leaves some of a slice unanswered
            point = made.load.measure(5e3, 0.3)
            if point.answered == point.sent > 500:
                break
        assert point.sent > 500
        assert point.answered == point.sent
        assert point.hist is not None
        assert point.hist.count == point.due
        assert made.server_nic is not None
        assert made.server_nic.stats().rx_frames >= point.sent
        assert made.usage().busy_s > 0
    assert point.busy_core_s > 0


def test_application_behind_an_iokernel(cores: tuple[int, int]) -> None:
    with rig.iokernel(["echo"], cores) as made:
        assert made.process is not None
        pid = made.process.pid
        point = answered(lambda: made.load.measure(5e3, 0.3))
        assert point.sent > 500
        assert point.answered <= point.sent  # all but those that a busy machine answers too late
        assert made.tids
        assert set(made.tids) <= set(usage.threads(pid))
    assert not os.path.exists(f"/proc/{pid}")


def test_two_lines_that_come_at_once_are_both_seen() -> None:
    said = b'{"event": "attached"}\n{"event": "serving", "port": 7}\n'
    script = f"import os, sys; os.write(1, {said!r}); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        app = app_of(process)
        try:
            assert app._await("serving", 5.0)["port"] == 7
        finally:
            app.close()


def app_of(process: "subprocess.Popen[bytes]") -> rig.App:
    """As if it had been started by `corelane run`."""
    app = rig.App.__new__(rig.App)
    app._process, app._said, app._closed = process, b"", False
    app._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed by app.close
    return app


def test_an_application_that_has_ended_by_itself_is_closed_as_any_other() -> None:
    """Whoever has seen that it is gone, its pipe and file are closed, and what it said last is kept."""
    script = """print('{"event": "stopped", "dropped": {"full": 3}}')"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    process.wait(60)
    app = app_of(process)
    app.close()
    assert app.ended["dropped"] == {"full": 3}
    assert process.stdout is not None
    assert process.stdout.closed
    assert app._errors.closed
    app.close()


def test_an_application_whose_pipe_another_process_holds_is_closed_at_once() -> None:
    script = """
import os, signal, subprocess, sys
subprocess.Popen(["sleep", "1000"])
signal.signal(signal.SIGTERM, lambda *_: os._exit(os.write(1, b'{"event": "stopped", "n": 1}\\n') and 0))
os.write(1, b'{"event": "serving"}\\n')
while True:
    signal.pause()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
    )
    app = app_of(process)
    try:
        app._await("serving", 30)
        app.close()
        assert app.ended == {"event": "stopped", "n": 1}
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the one that holds the pipe is still there


def test_an_application_ends_with_its_parent() -> None:
    """However the benchmark ends: the kernel tells the application."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        command = [sys.executable, "-m", "corelane.cli.main", "run", "echo", "--nic", "loadgen:echo,rate=10,seconds=60"]
        with open(os.devnull, "w") as null:
            process = subprocess.Popen([*command, "--with-parent", "--json"], stdout=subprocess.PIPE, stderr=null)
        assert process.stdout is not None
        process.stdout.readline()
        os.write(write_end, str(process.pid).encode())
        os._exit(0)
    os.close(write_end)
    pid = int(os.read(read_end, 32))
    os.close(read_end)
    os.waitpid(child, 0)
    deadline = time.monotonic() + 30
    while os.path.exists(f"/proc/{pid}") and _running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{pid}") or not _running(pid)


def _running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_runs_follow_each_other_on_a_polled_generator() -> None:
    """A new run is taken up once, by whoever polls, however the poll falls into the request."""
    generator = Loadgen(Echo(), server_ip="10.77.0.2")
    nic = generator.nic()
    with Runtime(nic=nic, poll="spin", address="10.77.0.2/16") as runtime:
        runtime.bind(echo.handler("c", 9000))
        runtime.start()
        for _ in range(300):
            generator.start([Phase(0.0005, 2e5)])
            generator.wait(60)
            assert 0 < generator.result().offered < 250
    generator.close()


@pytest.mark.parametrize("made", ["embedded", "iokernel"])
def test_checksums_are_on_both_ways(made: str, cores: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured is what a user gets: neither side is built with less than the product's defaults."""
    given: list[dict[str, object]] = []

    def spied(kind: type) -> object:
        def make(*args: object, **options: object) -> object:
            given.append(options)
            return kind(*args, **options)

        return make

    monkeypatch.setattr(rig, "Loadgen", spied(rig.Loadgen))
    monkeypatch.setattr(rig, "Runtime", spied(rig.Runtime))
    with (
        rig.embedded(lambda rt: rt.bind(echo.handler("c", 9000)), cores)
        if made == "embedded"
        else rig.iokernel(["echo"], cores)
    ) as one:
        point = answered(lambda: one.load.measure(2000, 0.1))
    assert point.answered <= point.sent  # as above
    generators = [options for options in given if "server_port" in options]
    assert [options["checksum"] for options in generators] == [True]
    assert all(options.get("udp_checksums", True) is True for options in given)
