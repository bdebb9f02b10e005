"""What every subcommand does with standard streams that are closed or full, and with paths that are no text."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corelane.cli.main import COMMANDS
from corelane.iokernel import Iokernel

PROGRAM = Path(__file__).parent / "programs" / "commands.py"
ODD = "f\udcff\u00e9"  # a name of bytes that are no UTF-8, and of letters that are


def commands(cases: list[dict[str, Any]], **environment: str) -> list[dict[str, Any]]:
    """What each of the command lines did."""
    run = [sys.executable, str(PROGRAM)]
    env = {**os.environ, **environment}
    done = subprocess.run(run, input=json.dumps(cases), env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    assert len(answers) == len(cases)
    for case, answer in zip(cases, answers, strict=True):
        assert "Traceback" not in answer["err"], (case, answer["err"])
        assert "xception" not in answer["err"], (case, answer["err"])
    return answers


@pytest.fixture(scope="module")
def iokernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iokernel]:
    """One on a socket whose folder's name is no text."""
    folder = tmp_path_factory.mktemp("io") / ODD
    folder.mkdir()
    with Iokernel(str(folder / "io.sock"), poll="block") as made:
        yield made


def printing(path: str) -> list[list[str]]:
    """A command line of each subcommand that prints a result."""
    on = ["--socket", path]
    return [
        ["--help"],
        ["--version"],
        ["doctor"],
        ["doctor", "--json"],
        ["up", "--sample"],
        ["run", "echo", "--nic", "loadgen:echo,seconds=0.01,rate=100", "--json"],
        ["ps", *on, "--interval", "0"],
        ["ps", *on, "--interval", "0", "--json"],
        ["top", *on, "--once", "-d", "0"],
        ["metrics", *on],
        ["policy", *on],
        ["raft", "init", "--log", "LOG", "--size", "8M", "--json"],
        ["raft-sim", "--seeds", "1", "--steps", "10"],
        ["bench", "--list"],
        ["log", "create", "LOG2", "--mib", "8"],
        ["config", "--cflags"],
    ]


def test_standard_output_that_is_closed_or_full_is_one_line(iokernel: Iokernel, tmp_path: Path) -> None:
    lines = [*printing(iokernel.socket_path), *([name, "--help"] for name in COMMANDS)]
    cases = [{"args": args, "out": "/dev/full", "cwd": str(tmp_path)} for args in lines]
    cases += [{**case, "out": "closed"} for case in cases if case["args"][0] in ("--version", "doctor", "ps")]
    for case, answer in zip(cases, commands(cases), strict=True):
        why = "No space left on device" if case["out"] == "/dev/full" else "Bad file descriptor"
        assert answer["code"] == 1, (case, answer)
        last = answer["err"].splitlines()[-1]
        assert last.endswith(f"write to the standard output: {why}"), (case, answer)


def test_paths_that_are_no_text_are_paths(iokernel: Iokernel, tmp_path: Path) -> None:
    folder = tmp_path / ODD
    folder.mkdir()
    (folder / "odd.py").write_text("def shout(request, reply):\n    reply[0] = 1\n    return 1\n")
    cases = [{"args": args, "cwd": str(folder)} for args in printing(iokernel.socket_path)]
    run = ["run", "odd:shout", "--port", "9000", "--nic", "loadgen:echo,seconds=0.01,rate=100"]
    cases += [{"args": [*run, *more], "cwd": str(folder)} for more in ([], ["--plain"])]
    on = ["--socket", iokernel.socket_path, "--seconds", "0.01"]
    cases += [{"args": ["run", "odd:shout", "--port", "9000", *on, "--plain", "--json"], "cwd": str(folder)}]
    answers = commands(cases)
    for case, answer in zip(cases, answers, strict=True):
        assert answer["code"] == (1 if case["args"][0] == "doctor" and answer["code"] else 0), (case, answer)
    shown = next(answer for case, answer in zip(cases, answers, strict=True) if case["args"][0] == "ps")
    assert iokernel.socket_path in shown["out"], "the bytes that it has"


WRONG = (
    ["up", "--config", ODD],
    ["up", "--set", f"policy.{ODD}=1"],
    ["up", "--nic", f"tap:{ODD * 8}"],
    ["up", "--nic", f"af_xdp:{ODD}"],
    ["up", "--nic", f"loadgen:echo,app={ODD},x=1"],
    ["up", "--policy", f"{ODD}:f", "--socket", "s.sock", "--poll", "block"],
    ["up", "--policy", f"{ODD}.so:f", "--socket", "s.sock", "--poll", "block"],
    ["up", "--socket", f"/nowhere/{ODD}"],
    ["run", ODD],
    ["run", f"{ODD}:handler"],
    ["run", f"json:{ODD}"],
    ["run", f"{ODD}.so"],
    ["run", "echo", "--socket", ODD, "--wait", "0"],
    ["run", "echo", "--option", f"{ODD}=1"],
    ["run", "echo", "--option", f"port={ODD}"],
    ["run", "echo", "--name", ODD, "--nic", f"pcap:{ODD}"],
    ["run", "echo", "--address", ODD, "--nic", "loadgen:echo"],
    ["ps", "--socket", ODD],
    ["ps", "--interval", ODD],
    ["top", "--socket", ODD],
    ["metrics", "--socket", ODD],
    ["metrics", "--listen", ODD],
    ["trace", "--socket", ODD],
    ["areas", "list", "--socket", ODD],
    ["policy", ODD, "--socket", ODD],
    ["raft", "init", "--log", f"/nowhere/{ODD}"],
    ["raft", "init", "--area", ODD, "--socket", ODD],
    ["raft", "status", "--peers", ODD],
    ["raft", "status", "--peers", "1=127.0.0.1:1", "--group", ODD, "--timeout", "0"],
    ["raft-sim", "--mode", ODD],
    ["bench", ODD],
    ["bench", "report", ODD],
    ["log", "check", ODD],
    ["log", "check", ODD, "--area", "--socket", ODD],
    ["config", ODD],
    ["doctor", ODD],
    [ODD],
)


@pytest.mark.parametrize("environment", [{}, {"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}], ids=str)
def test_words_that_are_no_text_are_refused_in_a_line(environment: dict[str, str], tmp_path: Path) -> None:
    chosen = {args[0]: args for args in WRONG}.values() if environment else WRONG
    cases = [{"args": args, "cwd": str(tmp_path)} for args in chosen]
    for case, answer in zip(cases, commands(cases, **environment), strict=True):
        assert answer["code"] in (1, 2), (case, answer)
        assert answer["err"].count("\n") == (0 if answer["out"] else 1), (case, answer)


def test_a_closed_standard_output_at_the_start_keeps_its_number(tmp_path: Path) -> None:
    command = f"exec {sys.executable} -m corelane.cli.main config --cflags"
    for streams, told in ((">&-", "write to the standard output"), (">&- 2>&-", ""), ("2>&-", ""), ("2>/dev/full", "")):
        done = subprocess.run(["sh", "-c", f"{command} {streams}"], capture_output=True, text=True, check=False)
        assert done.returncode == (1 if ">&-" in streams and not streams.startswith("2") else 0), streams
        assert told in done.stderr
        assert "Traceback" not in done.stderr
