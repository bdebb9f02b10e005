"""How `corelane run` ends; what it serves is in test_served.py."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from corelane.cli import targets, watch
from corelane.cli.main import main
from corelane.iokernel import Iokernel
from corelane.libos import Runtime
from corelane.runtime import paths
from corelane.runtime.errors import CorelaneError


class FailsLate:
    """Around a service, of which it is found that it failed when it is closed."""

    def __init__(self, service: targets.Service, runtime: Runtime) -> None:
        self.service, self.runtime = service, runtime
        self.ports, self.stats = service.ports, service.stats

    def close(self) -> None:
        self.service.close()
        self.runtime.fail(CorelaneError("serve it", "it has stopped"))


@pytest.mark.parametrize("nic", ["loadgen:echo,rate=1e3,seconds=0.1", "pcap:FILE"])
def test_what_is_found_to_have_failed_when_it_is_closed_is_the_end_of_the_run(
    nic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a Raft node that stops just before the load, or the time, is over."""
    file, frame = tmp_path / "one.pcap", bytes(60)
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    file.write_bytes(head + struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
    echo = targets.resolve("echo", [], port=None, plain=False)
    late = targets.Target("echo", lambda runtime: FailsLate(echo.setup(runtime), runtime))
    monkeypatch.setattr(targets, "resolve", lambda *_, **__: late)
    words = ["--nic", nic.replace("FILE", str(file)), "--address", "10.77.0.2/16", "--seconds", "0.01"]
    assert main(["run", "echo", *words]) == 1
    assert "serve it: it has stopped" in capsys.readouterr().err


def test_who_waits_finds_an_iokernel_whose_folder_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without root the default place depends on what is there: it is looked up again while somebody waits."""
    monkeypatch.setattr(paths, "SYSTEM_SOCKET", str(tmp_path / "system.sock"))
    monkeypatch.setattr(paths, "TEMPORARY", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    user = os.geteuid() or 4242
    monkeypatch.setattr(os, "geteuid", lambda: user)
    started: list[str] = []

    def comes(_seconds: float) -> None:  # in place of sleeping
        if started:
            return
        folder = tmp_path / f"corelane-{user}"
        folder.mkdir(mode=0o700)  # and not before
        os.chown(folder, user, -1)
        started.append(stack.enter_context(Iokernel(str(folder / "corelane.sock"), poll="block")).socket_path)

    monkeypatch.setattr(watch.time, "sleep", comes)
    with contextlib.ExitStack() as stack:
        code = main(["ps", "--wait", "60", "--interval", "0"])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert started[0] in out


def test_options_of_an_application_are_words_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--root DIR is --option root=DIR; what is the command's own stays so."""
    from corelane.cli import run
    from corelane.cli.usage import Parser

    parser = Parser(prog="corelane run", conflict_handler="resolve")
    run.add_arguments(parser)

    def rewritten(*words: str) -> list[str]:
        return run.rewrite(words, parser)

    assert rewritten("http", "--root", "a b", "--tls-cert=x", "--symlinks", "--port", "80", "--json") == [
        "http",
        *("--option", "root=a b", "--option", "tls_cert=x", "--option", "symlinks=true"),
        *("--port", "80", "--json"),
    ]
    assert rewritten("--seconds", "1", "kv", "--memory-bytes", "1") == [
        "--seconds",
        "1",
        "kv",
        "--option",
        "memory_bytes=1",
    ]
    assert rewritten("--name", "http", "kv", "--root", "x") == ["--name", "http", "kv", "--root", "x"]
    assert rewritten("shop:lower", "--root", "x") == ["shop:lower", "--root", "x"]
    assert main(["run", "http", "--nic", f"pcap:{tmp_path}/none", "--roots", "x"]) == 2
    assert "--roots" in capsys.readouterr().err


def test_what_an_application_counts_is_published_and_its_end_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """For `ps`, `top` and `metrics`: the items of a store, say, or the term of a Raft node."""
    published: list[dict[str, int]] = []
    watched: list[bool] = []
    ends_in_time, start = Runtime.ends_in_time, Runtime.start

    @contextlib.contextmanager
    def watch(runtime: Runtime) -> Iterator[None]:
        watched.append(True)
        with ends_in_time(runtime):
            yield
        watched.append(False)

    def started(runtime: Runtime) -> Runtime:
        watched.append(watched == [True])  # before the first request can come
        return start(runtime)

    monkeypatch.setattr(Runtime, "publish", lambda _runtime, numbers: published.append(numbers()))
    monkeypatch.setattr(Runtime, "ends_in_time", watch)
    monkeypatch.setattr(Runtime, "start", started)
    words = ["--nic", "loadgen:memcached,keys=10,rate=1e3,seconds=0.01", "--address", "10.77.0.2/16"]
    assert main(["run", "kv", *words, "--option", f"memory_bytes={8 << 20}"]) in (0, 1)  # 1: some came too late
    assert "items" in published[0]
    assert watched == [True, True, False]
