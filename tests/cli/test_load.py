"""corelane load: a server of known latency under load, from the command line."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, opened
from cltest import Namespace, NetnsFactory
from cltest.netns import skip_without_af_xdp
from cltest.waiting import wait_until

from corelane.bench.harness import document as doc
from corelane.cli.load import allow_descriptors
from corelane.cli.main import main
from corelane.cli.outputs import check_writable
from corelane.runtime.errors import CorelaneError

QUICK = ("--seconds", "0.1", "--warm", "0", "--no-share")


@contextlib.contextmanager
def echo_server(space: Namespace | None = None) -> Iterator[int]:
    """A UDP echo on loopback, or at all addresses of a namespace, that sleeps when nobody asks: beside one that polls,
    the canary would wait for it. Its port."""
    with contextlib.ExitStack() as stack:
        with space.entered() if space else contextlib.nullcontext():
            server = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        server.bind(("0.0.0.0" if space else "127.0.0.1", 0))
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)

        def serve() -> None:
            while True:
                got, peer = server.recvfrom(2048)
                if not got:
                    return
                server.sendto(got, peer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.sendto(b"", ("127.0.0.1", server.getsockname()[1]))
        thread.join(60)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with echo_server() as number:
        yield number


def load(port: int, *args: str) -> int:
    return main(["load", f"udp://127.0.0.1:{port}", *QUICK, *args])


@pytest.fixture
def own_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """What --request changes of Python's imports ends with the test."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "path_hooks", [*sys.path_hooks])


def test_it_says_what_it_measured_and_whether_to_trust_it(port: int, capsys: pytest.CaptureFixture[str]):
    assert load(port, "--rate", "2k") == 0
    out, err = capsys.readouterr()
    assert re.search(r"^  udp://127.0.0.1:\d+ +2,?000 ", out, re.M)
    assert "95 % interval, us" in out
    assert "canary (" in out
    assert "the client's own share" not in out
    assert "do not trust this as it stands" in out or "nothing speaks against this result" in out
    assert "requests/s for 0.1 s" in err


def test_every_output(port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'corelane[plot]'")
    hdrh = pytest.importorskip("hdrh.histogram", reason="needs hdrhistogram: pip install 'corelane[load]'")
    names = {option: tmp_path / option / f"x.{option}" for option in ("json", "hdr", "html", "record")}  # new folders
    plot = tmp_path / "x.png"
    words = [word for option, path in names.items() for word in (f"--{option}", str(path))]
    assert load(port, "--rate", "5k", "--plot", str(plot), *words) == 0
    document = doc.read(names["json"])
    arm = document["arms"][0]
    assert arm["answered"] == arm["sent"] > 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    page = names["html"].read_text()
    assert [title for title in ("The tail", "Over time") if f">{title}</h3>" in page] == ["The tail", "Over time"]
    assert "http" not in page.replace("http-equiv", "")
    assert json.loads(page.split('id="document">')[1].split("</script>")[0]) == document
    lines = names["record"].read_text().splitlines()
    assert len(lines) == 1 + arm["sent"]
    log = names["hdr"].read_text()
    assert float(re.findall(r"StartTime: ([\d.]+) ", log)[0]) <= time.time() - 0.1  # when it began, not when it ended
    tag, start, length, longest_ms, text = log.splitlines()[-1].split(",")
    histogram = hdrh.HdrHistogram.decode(text)
    assert histogram.get_total_count() == arm["sent"]
    assert histogram.get_value_at_percentile(50) / 1e3 == pytest.approx(arm["p50_us"], rel=2e-3)
    assert float(longest_ms) == pytest.approx(arm["max_us"] / 1e3, abs=2e-3)
    assert (tag.split("=")[0], start, length) == ("Tag", "0.000", "0.100")
    out = capsys.readouterr().out
    assert all(f"wrote {path}" in out for path in (*names.values(), plot))


def test_a_file_may_lie_in_a_folder_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /dev/stdout does, or a file that root has made for a user."""
    file = tmp_path / "made"
    file.touch()
    monkeypatch.setattr(os, "access", lambda path, mode: path == file)
    check_writable(file)
    with pytest.raises(CorelaneError, match="it is a folder"):
        check_writable(Path("/"))
    with pytest.raises(CorelaneError, match="is not a folder that may be written"):
        check_writable(tmp_path / "new")
    monkeypatch.setattr(os, "access", lambda path, mode: path == tmp_path)
    with pytest.raises(CorelaneError, match="it may not be written"):
        check_writable(file)


def test_a_full_disk_is_said_and_the_other_files_are_written(
    port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert load(port, "--json", "/dev/full", "--html", str(tmp_path / "x.html")) == 1
    out, err = capsys.readouterr()
    assert "use /dev/full: No space left on device" in err
    assert f"wrote {tmp_path}/x.html" in out
    assert "wrote /dev/full" not in out


def test_its_page_in_a_browser(port: int, tmp_path: Path):
    """At three widths: nothing to scroll sideways, nothing asked for, nothing complained of."""
    page = tmp_path / "x.html"
    browser = Browser(tmp_path / "profile")
    try:
        assert load(port, "--rate", "2k..8k", "--points", "3", "--html", str(page)) == 0
        for width, dark in ((360, True), (820, False), (1600, True)):
            with opened(browser, page, width, dark) as tab:
                assert tab.evaluate("document.documentElement.scrollWidth") <= width
                assert (tab.requests, tab.errors) == ([page.as_uri()], [])
                titles = tab.evaluate('[...document.querySelectorAll("h3")].map(h => h.textContent)')
                assert titles == ["The tail", "Over time", "Latency against load", "Canary"]
                assert tab.evaluate('[...document.querySelectorAll(".view svg")].every(s => s.querySelector("path"))')
    finally:
        browser.close()


def test_recorded_arrivals_are_replayed(port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "arrivals.csv"
    assert load(port, "--rate", "2k", "--record", str(path)) == 0
    count = len(path.read_text().splitlines()) - 1
    capsys.readouterr()
    assert load(port, "--arrivals", f"replay:{path}", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    row = document["arms"][0]
    assert row["sent"] == pytest.approx(count, abs=2)
    assert row["offered_rps"] == pytest.approx(row["sent"] / row["seconds"], rel=0.02), "what the warm-up has is apart"


def test_arrivals_of_several_loads_follow_one_another(port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "arrivals.csv"
    assert load(port, "--rate", "1k..2k", "--points", "2", "--record", str(path)) == 0
    count = len(path.read_text().splitlines()) - 1
    capsys.readouterr()
    assert load(port, "--arrivals", f"replay:{path}", "--json", "--seconds", "10") == 0
    assert json.loads(capsys.readouterr().out)["arms"][0]["sent"] == pytest.approx(count, abs=2)


def test_arrivals_that_end_before_anything_is_measured(port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "arrivals.csv"
    path.write_text("0.1\n0.2\n")
    assert load(port, "--arrivals", f"replay:{path}", "--warm", "1") == 2
    assert "they end after 0.2 s" in capsys.readouterr().err
    path.write_text("0.1\n9\n")
    assert load(port, "--arrivals", f"replay:{path}", "--warm", "1", "--seconds", "2") == 2
    assert "none is due in the 2 s that are measured" in capsys.readouterr().err


def test_sweeps_of_two_servers_take_turns(port: int, capsys: pytest.CaptureFixture[str]):
    with echo_server() as other:
        assert load(port, "--vs", f"udp://127.0.0.1:{other}", "--rate", "500..1k", "--points", "2", "--json") == 0
    out, err = capsys.readouterr()
    begun = re.findall(r":(\d+): ([\d,]+) requests/s for", err)
    assert begun == [(str(p), rate) for rate in ("500", "1,000") for p in (port, other)]
    assert len(json.loads(out)["settings"]["stops"]) == 2


def test_two_servers_in_turns(port: int, capsys: pytest.CaptureFixture[str]):
    with echo_server() as other:
        assert load(port, "--vs", f"udp://127.0.0.1:{other}", "--rounds", "2", "--json") == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert f", in turns with udp://127.0.0.1:{other}" in err
    assert [arm["name"] for arm in document["arms"]].count(f"udp://127.0.0.1:{port}") == 2
    assert len(document["arms"]) == 4
    assert len(document["settings"]["compared"]["p50"]["runs"]) == 2


def test_a_sweep(port: int, capsys: pytest.CaptureFixture[str]):
    assert load(port, "--rate", "500..2k", "--points", "3", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [arm["offered_rps"] for arm in document["arms"]] == pytest.approx([500, 1000, 2000])
    assert document["settings"]["stops"]


def test_a_limit(port: int, capsys: pytest.CaptureFixture[str]):
    assert load(port, "--rate", "500..2k", "--slo", "p50=1s", "--tries", "4", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    found = document["settings"]["found"][f"udp://127.0.0.1:{port}"]
    assert "p50 of 1,000,000 us at most" in found["text"]
    assert document["settings"]["percentile"] == 0.99
    # On a machine that stalls, no rate may be carried.
    assert found["keeps_rps"] == 2000 or len(document["arms"]) == 4


def test_the_verdict_is_about_the_percentile_of_the_limit(port: int, capsys: pytest.CaptureFixture[str]):
    assert load(port, "--slo", "p99.9=1s", "--tries", "1", "--vs", f"udp://127.0.0.1:{port}", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["settings"]["percentile"] == 0.999
    for arm in document["arms"]:
        assert any("p99.9 needs" in doubt["text"] for doubt in arm["doubts"])


@pytest.mark.usefixtures("own_imports")
def test_requests_of_ones_own(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "own_requests.py").write_text(
        "def ask(out, number):\n"
        "    out[:32] = 0\n"
        "    out[0] = number % 250\n"
        "    out[8] = out[12] = 32\n"  # as reference.h has it: its length, that of the answer, kept no time
        "    return 32\n"
    )
    monkeypatch.chdir(tmp_path)
    assert load(port, "--request", "own_requests:ask", "--timeout", "5", "--json") == 0
    arm = json.loads(capsys.readouterr().out)["arms"][0]
    assert arm["answered"] == arm["sent"] > 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["load"], 2, "the following arguments are required: url"),
        (["load", "nonsense"], 2, "does not begin with one of memcached://"),
        (["load", "https://127.0.0.1:1", *QUICK], 1, "connect to 127.0.0.1 port 1"),
        (["load", "https://127.0.0.1:1", "--ca", "/none", *QUICK], 1, "the certificates of --ca cannot be used"),
        (["load", "tcp://127.0.0.1:1", "--address", "10.0.0.1/24"], 2, "give a --nic beside it"),
        (["load", "tcp://127.0.0.1:1", "--nic", "loadgen:echo"], 2, "no server is beyond it"),
        (["load", "tcp://127.0.0.1:1", "--nic", "tap:x", "--threads", "2"], 2, "there is one thread of load"),
        (["load", "tcp://127.0.0.1:1", "--socket", "/none", "--address", "10.0.0.1/24"], 2, "gives addresses"),
        (["load", "tcp://127.0.0.1:1", "--socket", "/none", "--nic", "tap:x"], 2, "not allowed with"),
        (["load", "tcp://127.0.0.1:1", "--socket", "/none"], 1, "/none"),
        (["load", "udp://h:1", "--rate", "often"], 2, "'often' is no rate"),
        (["load", "udp://h:1", "--rate", "2k..1k"], 2, "is no rate"),
        (["load", "tcp://127.0.0.1:1", "--workload", "x"], 2, "no workload 'x'"),
        (["load", "tcp://127.0.0.1:1", "--seconds", "0"], 2, "in no time"),
        (["load", "tcp://127.0.0.1:1", "--percentile", "100"], 2, "not between 0 and 100"),
        (["load", "tcp://127.0.0.1:1", "--slo", "fast"], 2, "no limit of latency"),
        (["load", "tcp://127.0.0.1:1", "--request", "x"], 2, "not of the form module:function"),
        (["load", "tcp://127.0.0.1:1", "--request", "no_such_module:f"], 1, "import no_such_module"),
        (["load", "tcp://127.0.0.1:1", "--reply", "a:b"], 2, "no --request beside it"),
        (["load", "http://127.0.0.1:1", "--request", "json:loads"], 1, "compile loads"),
        (["load", "http://127.0.0.1:1", "--header", "x"], 2, "is no header"),
        (["load", "tcp://127.0.0.1:1", "--json", "/dev/null/x"], 1, "write /dev/null/x"),
        (["load", "tcp://127.0.0.1:1", "--plot", "x.svg"], 1, "give a name that ends with .png"),
        (["load", "tcp://127.0.0.1:1", *QUICK], 1, "connect to 127.0.0.1 port 1"),
    ],
)
@pytest.mark.usefixtures("own_imports")
def test_errors_are_sentences(words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]):
    assert main(words) == code
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_many_connections_raise_the_limit_of_open_files(port: int, monkeypatch: pytest.MonkeyPatch):
    limits = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: limits.append(pair))
    for wanted in (500, 2000, 10_000):
        allow_descriptors(wanted)
    assert limits == [(1024, 4096), (2000, 4096), (4096, 4096)]


def test_an_interrupt_prints_what_there_is(port: int, tmp_path: Path):
    command = [sys.executable, "-m", "corelane.cli.main", "load", f"udp://127.0.0.1:{port}", "--no-share"]
    with (tmp_path / "err").open("w+b") as err:
        process = subprocess.Popen(
            [*command, "--seconds", "600", "--warm", "0", "--json"], stdout=subprocess.PIPE, stderr=err, cwd=tmp_path
        )
        wait_until(lambda: b" answered" in (tmp_path / "err").read_bytes(), 60, "progress")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    document = json.loads(out)
    arm = document["arms"][0]
    assert arm["aborted"] is True
    assert arm["answered"] == arm["sent"] > 0
    assert document["settings"]["interrupted"] is True


@pytest.mark.root
@pytest.mark.parametrize("kind", ["af_xdp", "tap"])
def test_a_nic_of_its_own_carries_it(
    netns: NetnsFactory, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To a server on Linux' sockets: at the other end of a veth pair, and on this machine behind a tap."""
    if kind == "af_xdp":
        skip_without_af_xdp()
        near, far = netns.link(static_arp=False)
        space, there, server = near.namespace, far.namespace, far.address
        nic, own = f"af_xdp:{near.name}", "10.79.0.9/24"
    else:
        space = there = netns.add("load")
        server, nic, own = "10.79.3.1", "tap:clload0,host=10.79.3.1/24", "10.79.3.2/24"
    file = tmp_path / "load.json"
    words = ["--nic", nic, "--address", own, "--rate", "500", "--drain", "20", "--json", str(file), *QUICK]
    with echo_server(there) as port, space.entered():
        assert main(["load", f"udp://{server}:{port}", *words]) == 0
    assert f"{nic}, corelane's stack" in capsys.readouterr().out
    (arm,) = json.loads(file.read_text())["arms"]
    assert arm["answered"] == arm["sent"] > 10


@pytest.mark.root
def test_it_needs_no_rights(port: int) -> None:
    """Without a single capability."""
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv: apt-get install util-linux")
    without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    words = ["load", f"udp://127.0.0.1:{port}", "--seconds", "0.1", "--warm", "0", "--drain", "20"]
    command = [*without, sys.executable, "-m", "corelane.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^  udp://127.0.0.1:\d+ +1,?000 ", done.stdout, re.M)
    assert "has a right answer" not in done.stdout
