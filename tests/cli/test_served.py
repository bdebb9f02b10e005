"""What `run` serves, as a user starts it: targets of every kind, their faults, and a NIC that makes the load."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cltest import wait_until
from cltest.commands import ask
from cltest.switching import udp_frame

from corelane.cli import config
from corelane.drivers.nic.nic import ipv4_to_int, mac_to_bytes
from corelane.drivers.port.port import open_port
from corelane.iokernel import Iokernel

SHOUT = """
from corelane import libos

@libos.udp(port=9010)
def compiled(request, reply):
    for i in range(len(request)):
        reply[i] = request[i]
    return len(request)

@libos.udp(port=9012, batch=8, limit_us=60_000_000)
def batched(requests, replies, lengths):
    for i in range(len(requests)):
        lengths[i] = len(requests[i])
        replies[i][: lengths[i]] = requests[i]

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
CL_HANDLER(serve, 9011);
"""


def build_c(folder: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc: apt-get install gcc libc6-dev")
    (folder / "serve.c").write_text(C_ECHO)
    flags = ["-O1", "-shared", "-fPIC", f"-I{config.folders()[0]}", "-D_GNU_SOURCE"]
    subprocess.run(["gcc", *flags, "serve.c", "-o", "serve.so"], cwd=folder, check=True)


@pytest.mark.parametrize(
    "target",
    [["echo"], ["shout:compiled"], ["shout:batched"], ["shout:plain", "--plain", "--port", "9000"], ["./serve.so"]],
    ids=["built-in", "numba", "batches", "python", "compiled"],
)
def test_every_kind_of_target_serves_a_generated_load(tmp_path: Path, target: list[str]) -> None:
    """Embedded, without root and without an iokernel: the load generator is the NIC."""
    (tmp_path / "shout.py").write_text(SHOUT)
    if target == ["./serve.so"]:
        build_c(tmp_path)
    nic = "loadgen:echo,rate=2e3,seconds=0.5"  # it asks the handler's own port
    done = ask("run", *target, "--nic", nic, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    events = {e["event"]: e for e in map(json.loads, done.stdout.splitlines())}
    assert events["load"]["sent"] > 500
    assert events["load"]["answered"] == events["load"]["sent"]
    assert events["stopped"]["net"]["handler_errors"] == 0


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
    words = ("--plain", "--port", "9000", "--nic", "loadgen:echo,rate=1e3,seconds=0.2", "--json")
    done = ask("run", "other:other", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    load = next(e for e in map(json.loads, done.stdout.splitlines()) if e["event"] == "load")
    assert load["answered"] == 0
    assert load["strays"] + load["wrong"] + load["errors"] > 0
    assert "answer nothing that was asked" in load["text"]


def test_requests_that_fail_in_the_handler_are_told(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def bad(request):\n    raise LookupError('no')\n")
    words = ("--plain", "--port", "9000", "--nic", "loadgen:echo,rate=1e3,seconds=0.1")
    done = ask("run", "bad:bad", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"replied to 0, failed [1-9]\d* in the handler, dropped none", done.stderr), done.stderr


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
        wait_until((tmp_path / "entered").exists, 60, "the request to be taken")
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
