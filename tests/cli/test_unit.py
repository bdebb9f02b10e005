"""Unit files for systemd, and what the services tell it."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cltest import die_with_parent

from corelane.cli import run, up
from corelane.cli.main import main
from corelane.cli.usage import Parser

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("app", "command"), [("", up), ("kv", run)])
def test_a_unit_starts_a_command_line_that_there_is(
    app: str, command: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "--unit", *([app] if app else [])]) == 0
    text = capsys.readouterr().out
    assert "@" not in text
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    assert unit["Service"]["Type"] == "notify"
    program, subcommand, *words = unit["Service"]["ExecStart"].split()
    assert Path(program).is_absolute()
    assert subcommand == command.__name__.rpartition(".")[2]  # type: ignore[attr-defined]
    parser = Parser(conflict_handler="resolve")
    command.add_arguments(parser)  # type: ignore[attr-defined]
    parser.parse_args(words)
    if app:
        assert "corelane.service" in unit["Unit"]["After"]
        assert unit["Service"]["LimitNICE"] == "20", "what it takes to leave SCHED_IDLE at nice 0 (getrlimit(2))"


def test_systemd_takes_the_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze: apt-get install systemd")
    for name, words in (("corelane", []), ("corelane-kv", ["kv"])):
        assert main(["config", "--unit", *words]) == 0
        (tmp_path / f"{name}.service").write_text(capsys.readouterr().out.replace("ExecStart=", "ExecStart=/bin/true "))
    command = ["systemd-analyze", "verify", *map(str, sorted(tmp_path.glob("*.service")))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "corelane" not in done.stderr, done.stderr


ODD = {
    "a space": ("x y", '"@/x y/corelane"'),
    "a percent sign": ("50%h", "@/50%%h/corelane"),
    "a dollar": ("a${HOME}b", "@/a${HOME}b/corelane"),
    "a placeholder": ("@APP@", "@/@APP@/corelane"),
    "a quote": ("it's", '/usr/bin/env "@/it\'s/corelane"'),
    "a double quote": ('a"b $c', '/usr/bin/env "@/a\\x22b $$c/corelane"'),
    "a backslash": ("a\\nb", '/usr/bin/env "@/a\\x5cnb/corelane"'),
    "an end of line": ("a\nb%", '/usr/bin/env "@/a\\x0ab%%/corelane"'),
}


@pytest.mark.parametrize("odd", ODD)
def test_a_path_is_quoted_as_systemd_wants_it(
    odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, expected = ODD[odd]
    command = tmp_path / name / "corelane"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(command)])
    assert main(["config", "--unit", "kv"]) == 0
    text = capsys.readouterr().out
    (line,) = re.findall("^ExecStart=(.*)$", text, re.MULTILINE)
    assert line == expected.replace("@", str(tmp_path), 1) + " run kv --wait 30"
    if shutil.which("systemd-analyze"):
        (tmp_path / "corelane-kv.service").write_text(text)
        verify = ["systemd-analyze", "verify", str(tmp_path / "corelane-kv.service")]
        done = subprocess.run(verify, capture_output=True, text=True, check=False)
        assert "corelane-kv.service" not in done.stderr, done.stderr


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(60)
        yield sock


@pytest.mark.parametrize(
    "words",
    [
        ["up", "--socket", "io.sock", "--poll", "block", "--set", "cores.policy=none"],
        ["run", "echo", "--nic", "loadgen:echo,seconds=0.01,rate=100"],
    ],
    ids=lambda words: words[0],
)
def test_services_say_that_they_are_ready_and_that_they_stop(
    words: list[str], listener: socket.socket, tmp_path: Path
) -> None:
    environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
    command = [sys.executable, "-m", "corelane.cli.main", *words]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent
    ) as process:
        ready, _, status = listener.recv(4096).decode().partition("\n")
        assert ready == "READY=1"
        assert status.startswith("STATUS=" + {"up": "iokernel on", "run": "echo serves UDP port 9000"}[words[0]])
        if words[0] == "up":
            assert (tmp_path / "io.sock").exists(), "it listens before it says so"
            process.send_signal(signal.SIGTERM)
        assert listener.recv(4096).decode().splitlines()[0] == "STOPPING=1"
        assert process.wait(60) == 0
